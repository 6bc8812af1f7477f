package main

import (
	"fmt"
	"strings"

	"github.com/lathe-gateway/lathe/internal/config"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Say all that is wrong with the configuration, each fault with its line."`
	Show  configShowCmd  `cmd:"" help:"Print the configuration as it takes effect, defaults included, secrets redacted."`
}

type configCheckCmd struct {
	configured
}

// Run reads the configuration and says what is wrong.
func (c *configCheckCmd) Run(t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s is valid\n", source(cfg))
	if len(cfg.Keys) == 0 && !config.Loopback(cfg.Listen) {
		return fmt.Errorf("but lathe serve will refuse it: listen: %s can be reached from other machines, and there are no keys: "+
			"add keys, or listen on 127.0.0.1", cfg.Listen)
	}
	return nil
}

type configShowCmd struct {
	configured
}

// Run prints the configuration.
func (c *configShowCmd) Run(t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "# %s\n# images are looked for in %s (LATHE_IMAGE_DIR names another folder)\n%s", source(cfg), strings.Join(cfg.ImageDirs, ", "), text)
	return nil
}

func source(cfg *config.Config) string {
	if cfg.File == "" {
		return "the built-in configuration"
	}
	return cfg.File
}
