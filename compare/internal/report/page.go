// Package report shows the results of a comparison: as a table in a terminal, and as a page that opens
// in a browser without a network.
//
// The page is drawn by our own page.js. Maintained libraries draw charts, not the lanes of a history,
// and each is several times as large as what is needed here.
package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/golockers/locker/compare/internal/history"
)

//go:embed page.html
var page string

//go:embed page.css
var style string

//go:embed page.js
var program string

// Save writes report.json and report.html into dir.
func Save(r *history.Report, dir string) error {
	data, _ := json.MarshalIndent(r, "", " ") // < and > are escaped: no string of the report ends the script
	err := os.WriteFile(filepath.Join(dir, history.ReportFile), append(data, '\n'), 0o644)
	if err == nil {
		fill := strings.NewReplacer("/*style*/", style, "/*program*/", program, "/*report*/", string(data))
		err = os.WriteFile(filepath.Join(dir, history.PageFile), []byte(fill.Replace(page)), 0o644)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
