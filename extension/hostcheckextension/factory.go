package hostcheckextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

var componentType = component.MustNewType("host_check")

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(
		componentType,
		func() component.Config { return new(Config) },
		func(_ context.Context, _ extension.Settings, c component.Config) (extension.Extension, error) {
			return newHostCheck(c.(*Config)), nil
		},
		component.StabilityLevelAlpha,
	)
}
