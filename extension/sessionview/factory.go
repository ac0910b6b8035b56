package sessionview

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

var componentType = component.MustNewType("session_view")

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(componentType, createDefaultConfig,
		func(_ context.Context, set extension.Settings, c component.Config) (extension.Extension, error) {
			return newView(c.(*Config), set), nil
		}, component.StabilityLevelAlpha)
}
