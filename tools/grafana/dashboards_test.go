// Package grafana validates the dashboards of deploy/grafana against Grafana's schema.
package grafana

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Unknown fields, wrong types and missing values are errors, in the options of panels too. The queries are those of a
// data source that is not Grafana's; package deploy runs them.
func TestDashboards(t *testing.T) {
	r := cog.NewRuntime()
	r.RegisterPanelcfgVariant(barchart.VariantConfig())
	r.RegisterPanelcfgVariant(stat.VariantConfig())
	r.RegisterPanelcfgVariant(table.VariantConfig())
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())

	files, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard.Dashboard
		// If there is no mistake, the error is an empty list.
		if err := d.UnmarshalJSONStrict(text); err.Error() != "" {
			t.Errorf("%s:\n%v", file, err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("%s:\n%v", file, err)
		}
		for _, p := range d.Panels {
			if p.Panel == nil {
				continue // a row
			}
			if _, ok := r.ConfigForPanelcfgVariant(p.Panel.Type); !ok {
				t.Errorf("%s: the options of panels of type %s are not validated", file, p.Panel.Type)
			}
		}
		for _, name := range []string{"schemaVersion", "gridPos", "fieldConfig", "textMode", "drawStyle", "frameIndex"} {
			wrong := bytes.Replace(text, []byte(`"`+name+`"`), []byte(`"`+name+`s"`), 1)
			if new(dashboard.Dashboard).UnmarshalJSONStrict(wrong).Error() == "" {
				t.Errorf("%s: a misspelt %s is no error", file, name)
			}
		}
	}
}
