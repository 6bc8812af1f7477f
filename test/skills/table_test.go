package skills

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTableOfLiteLLM holds docs/litellm-skills.md against the tree: every test that it names exists, and every defect has its row.
func TestTableOfLiteLLM(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/litellm-skills.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:internal|test)/[a-z/]+)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 60 {
		t.Errorf("%d tests are named", len(named))
	}
	sources := map[string]string{}
	for _, n := range named {
		folder, test := n[1], n[2]
		if sources[folder] == "" {
			files, err := filepath.Glob("../../" + folder + "/*_test.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				source, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				sources[folder] += string(source)
			}
		}
		if !strings.Contains(sources[folder], "func "+test+"(t *testing.T)") {
			t.Errorf("there is no %s in %s", test, folder)
		}
	}
	_, defects, _ := strings.Cut(string(text), "## The defects")
	for i := 1; i <= 32; i++ {
		if !strings.Contains(defects, "\n| "+strconv.Itoa(i)+" | ") {
			t.Errorf("defect %d has no row", i)
		}
	}
}
