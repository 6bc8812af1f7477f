package sandboxtest

import "testing"

// TestAbuseCount holds what the suite promises: sixty different cases at least.
func TestAbuseCount(t *testing.T) {
	seen := map[string]bool{}
	for group, cases := range abuseCases() {
		for _, c := range cases {
			if name := group + "/" + c.name; seen[name] || c.name == "" || c.code == "" {
				t.Errorf("%s is there twice, or empty", name)
			} else {
				seen[name] = true
			}
		}
	}
	t.Logf("%d cases", len(seen))
	if len(seen) < 60 {
		t.Errorf("%d cases", len(seen))
	}
}
