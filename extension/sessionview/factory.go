package sessionview

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/agenttrace/agenttrace/extension/sessionview/internal/metadata"
)

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig,
		func(_ context.Context, set extension.Settings, c component.Config) (extension.Extension, error) {
			return newView(c.(*Config), set), nil
		}, metadata.ExtensionStability)
}
