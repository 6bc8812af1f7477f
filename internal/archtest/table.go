package archtest

import (
	"path"
	"slices"
	"strings"
)

// Imports says which packages of internal each package of internal may import outside its tests. Imports point down: a row names only
// packages that stand for less than it does. cmd/lathe may import everything.
var Imports = map[string][]string{
	// The canonical form and the wires stand alone.
	"turn":              {},
	"wire/oaichat":      {},
	"wire/oairesponses": {},
	"wire/anthropic":    {},
	"wire/peek":         {},
	"sse":               {},
	"guest/proto":       {},
	"auth":              {"turn"},
	"config":            {"egress/rule"},
	"egress/rule":       {},
	"datadir":           {},
	"archtest":          {},
	"operator":          {},
	"image/rootfs":      {},
	"image":             {"image/rootfs"},
	"skill":             {},

	// Contracts.
	"tool":     {"turn"},
	"provider": {"turn"},
	"sandbox":  {},
	"store":    {},

	// Implementations, which only the wiring knows.
	"provider/openaichat":      {"provider", "turn", "upstream", "wire/oaichat"},
	"provider/openairesponses": {"provider", "turn", "upstream", "wire/oairesponses"},
	"provider/anthropic":       {"provider", "turn", "upstream", "wire/anthropic"},
	"provider/demo":            {"provider", "turn"},
	"upstream":                 {"provider", "sse", "turn", "wire/peek"},
	"store/sqlite":             {"store"},
	"blob":                     {},
	"memory":                   {},
	"guest":                    {"guest/editor", "guest/proto", "guest/tunnel"},
	"guest/editor":             {"guest/proto"},
	"guest/tunnel":             {"guest/proto"},
	"guest/embedded":           {},
	"sandbox/gvisor":           {"guest/embedded", "guest/proto", "image", "sandbox", "sandbox/link"},
	"image/oci":                {"image/rootfs"},
	"image/build":              {"image", "image/oci", "image/rootfs", "sandbox"},
	"sandbox/link":             {"guest/proto", "guest/tunnel", "sandbox"},

	// What stands between.
	"agent":         {"auth", "provider", "skill", "store", "tool", "turn"},
	"run":           {"auth", "store", "turn"},
	"native":        {"auth", "provider", "store", "turn"},
	"egress":        {"egress/rule", "sandbox", "turn"},
	"container":     {"auth", "blob", "egress", "memory", "sandbox", "store", "tool", "turn"},
	"litellm":       {"skill"},
	"skill/catalog": {"auth", "blob", "skill", "store", "tool", "turn"},
	"telemetry":     {"sandbox", "turn"},

	// HTTP.
	"surface/oai":        {"turn"},
	"surface/anthropic":  {"turn"},
	"surface/batches":    {"auth", "native", "provider", "store", "surface/anthropic", "turn", "wire/peek"},
	"surface/chat":       {"auth", "provider", "sse", "surface/oai", "turn", "wire/oaichat", "wire/peek"},
	"surface/responses":  {"auth", "provider", "sse", "surface/oai", "turn", "wire/oairesponses", "wire/peek"},
	"surface/messages":   {"provider", "sse", "surface/anthropic", "turn", "wire/anthropic", "wire/peek"},
	"surface/models":     {"auth", "provider", "surface/anthropic", "surface/oai", "turn"},
	"surface/containers": {"auth", "container", "store", "surface/oai", "turn"},
	"surface/files":      {"auth", "container", "store", "surface/anthropic", "surface/oai", "turn"},
	"surface/skills":     {"auth", "skill", "skill/catalog", "store", "surface/anthropic", "surface/oai", "turn"},
	"server":             {"auth", "surface/anthropic", "surface/oai", "telemetry", "turn"},

	"bench": {"auth", "sandbox", "tool", "turn"},

	// For tests only.
	"sandbox/fake":          {"guest", "guest/proto", "sandbox", "sandbox/link"},
	"sandbox/sandboxtest":   {"sandbox"},
	"store/storetest":       {"store"},
	"provider/providertest": {"goldentest", "provider", "turn", "upstreamtest"},
	"goldentest":            {},
	"upstreamtest":          {"wire/anthropic", "wire/oaichat", "wire/oairesponses"},
	"upstreamtest/cmd/stub": {"upstreamtest"},
}

// implementations are what a contract package has under it. Only wire.go of cmd/lathe names them.
var implementations = []string{"provider/", "store/", "sandbox/"}

func isImplementation(target string) bool {
	return slices.ContainsFunc(implementations, func(prefix string) bool { return strings.HasPrefix(target, prefix) })
}

// isTestHelp says whether a package exists for tests: its name, or that of a folder above it, ends in test, or it is a fake.
func isTestHelp(target string) bool {
	for dir := target; dir != "."; dir = path.Dir(dir) {
		if base := path.Base(dir); strings.HasSuffix(base, "test") && base != "archtest" || base == "fake" {
			return true
		}
	}
	return false
}
