package collector

import (
	"errors"
	"runtime/debug"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/healthcheckextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/pprofextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"go.opentelemetry.io/collector/component"
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
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/zpagesextension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"

	"github.com/agenttrace/agenttrace/exporter/sessionexporter"
	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/processor/redactionprocessor"
	"github.com/agenttrace/agenttrace/receiver/otlpguard"
)

const (
	core    = "go.opentelemetry.io/collector/"
	contrib = "github.com/open-telemetry/opentelemetry-collector-contrib/"
	ours    = "github.com/agenttrace/agenttrace"
)

// part is a component and the module that it comes from.
type part[F component.Factory] struct {
	factory F
	module  string
}

// Components returns the factories of everything that a configuration may name.
func Components() (otelcol.Factories, error) {
	f := otelcol.Factories{Telemetry: telemetryFactory()}
	var errs [5]error
	f.Receivers, f.ReceiverModules, errs[0] = assemble(
		part[receiver.Factory]{otlpguard.NewFactory(), ours},
	)
	f.Processors, f.ProcessorModules, errs[1] = assemble(
		part[processor.Factory]{memorylimiterprocessor.NewFactory(), core + "processor/memorylimiterprocessor"},
		part[processor.Factory]{redactionprocessor.NewFactory(), ours},
	)
	f.Exporters, f.ExporterModules, errs[2] = assemble(
		part[exporter.Factory]{sessionexporter.NewFactory(), ours},
		part[exporter.Factory]{otlpexporter.NewFactory(), core + "exporter/otlpexporter"},
		part[exporter.Factory]{otlphttpexporter.NewFactory(), core + "exporter/otlphttpexporter"},
		part[exporter.Factory]{debugexporter.NewFactory(), core + "exporter/debugexporter"},
		part[exporter.Factory]{nopexporter.NewFactory(), core + "exporter/nopexporter"},
		part[exporter.Factory]{fileexporter.NewFactory(), contrib + "exporter/fileexporter"},
	)
	f.Connectors, f.ConnectorModules, errs[3] = assemble(
		part[connector.Factory]{sessionexporter.NewFactory(), ours},
	)
	f.Extensions, f.ExtensionModules, errs[4] = assemble(
		part[extension.Factory]{filestorage.NewFactory(), contrib + "extension/storage/filestorage"},
		part[extension.Factory]{healthcheckextension.NewFactory(), contrib + "extension/healthcheckextension"},
		part[extension.Factory]{pprofextension.NewFactory(), contrib + "extension/pprofextension"},
		part[extension.Factory]{zpagesextension.NewFactory(), core + "extension/zpagesextension"},
		part[extension.Factory]{bearertokenauthextension.NewFactory(), contrib + "extension/bearertokenauthextension"},
		part[extension.Factory]{hostcheckextension.NewFactory(), ours},
		part[extension.Factory]{sessionview.NewFactory(), ours},
	)
	return f, errors.Join(errs[:]...)
}

// providers are what a configuration may be read from.
func providers() []confmap.ProviderFactory {
	return []confmap.ProviderFactory{envprovider.NewFactory(), fileprovider.NewFactory(), yamlprovider.NewFactory()}
}

func assemble[F component.Factory](parts ...part[F]) (map[component.Type]F, map[component.Type]string, error) {
	factories := make([]F, len(parts))
	modules := make(map[component.Type]string, len(parts))
	for i, p := range parts {
		factories[i] = p.factory
		modules[p.factory.Type()] = withVersion(p.module)
	}
	byType, err := otelcol.MakeFactoryMap(factories...)
	return byType, modules, err
}

// withVersion adds the version with which a module was built in, if the binary reports so.
func withVersion(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return module
	}
	if info.Main.Path == module {
		return module + " " + info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return module + " " + d.Version
		}
	}
	return module
}
