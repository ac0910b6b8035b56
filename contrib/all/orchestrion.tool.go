//go:build tools

package alltrace

import _ "github.com/DataDog/orchestrion" // integration
