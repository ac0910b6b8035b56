package hostcheckextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension/internal/metadata"
)

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(
		metadata.Type,
		func() component.Config { return new(Config) },
		func(_ context.Context, _ extension.Settings, c component.Config) (extension.Extension, error) {
			return newHostCheck(c.(*Config)), nil
		},
		metadata.ExtensionStability,
	)
}
