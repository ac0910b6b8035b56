package collector

import (
	"errors"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/healthcheckextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/pprofextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/nopexporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/extension/zpagesextension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"

	"github.com/agenttrace/agenttrace/exporter/sessionexporter"
	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/processor/redactionprocessor"
	"github.com/agenttrace/agenttrace/receiver/otlpguard"
)

// Components returns the factories of everything that a configuration may name.
func Components() (otelcol.Factories, error) {
	f := otelcol.Factories{Telemetry: telemetryFactory()}
	var errs [5]error
	f.Receivers, errs[0] = otelcol.MakeFactoryMap(otlpguard.NewFactory())
	f.Processors, errs[1] = otelcol.MakeFactoryMap(memorylimiterprocessor.NewFactory(), redactionprocessor.NewFactory())
	f.Exporters, errs[2] = otelcol.MakeFactoryMap[exporter.Factory](sessionexporter.NewFactory(),
		otlpexporter.NewFactory(), otlphttpexporter.NewFactory(), debugexporter.NewFactory(), nopexporter.NewFactory(),
		fileexporter.NewFactory())
	f.Connectors, errs[3] = otelcol.MakeFactoryMap[connector.Factory](sessionexporter.NewFactory())
	f.Extensions, errs[4] = otelcol.MakeFactoryMap(filestorage.NewFactory(), healthcheckextension.NewFactory(),
		pprofextension.NewFactory(), zpagesextension.NewFactory(), bearertokenauthextension.NewFactory(),
		hostcheckextension.NewFactory(), sessionview.NewFactory())
	return f, errors.Join(errs[:]...)
}

// providers are what a configuration may be read from.
func providers() []confmap.ProviderFactory {
	return []confmap.ProviderFactory{envprovider.NewFactory(), fileprovider.NewFactory(), yamlprovider.NewFactory()}
}
