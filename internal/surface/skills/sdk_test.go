package skills_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	openaisdk "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/lathe-gateway/lathe/internal/skill/catalog"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// TestOpenAISDK drives the surface with OpenAI's own client: folder and zip, versions, default, content, paging, delete.
func TestOpenAISDK(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	ctx := t.Context()
	client := openaisdk.NewClient(openaioption.WithBaseURL(s.url+"/v1"), openaioption.WithAPIKey("k"))
	folder := func(text string) []io.Reader {
		return []io.Reader{
			openaisdk.File(strings.NewReader(manifest("tables", text)), "tables/SKILL.md", "text/markdown"),
			openaisdk.File(strings.NewReader("print(1)\n"), "tables/scripts/a.py", "text/x-python"),
		}
	}
	skill, err := client.Skills.New(ctx, openaisdk.SkillNewParams{Files: openaisdk.SkillNewParamsFilesUnion{OfFileArray: folder("one")}})
	if err != nil {
		t.Fatal(err)
	}
	if skill.Name != "tables" || skill.Description != "one" || skill.DefaultVersion != "1" || skill.Object != "skill" {
		t.Errorf("created %+v", skill)
	}
	version, err := client.Skills.Versions.New(ctx, skill.ID, openaisdk.SkillVersionNewParams{
		Files: openaisdk.SkillVersionNewParamsFilesUnion{OfFileArray: folder("two")}, Default: openaisdk.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	if version.Version != "2" || version.SkillID != skill.ID {
		t.Errorf("version %+v", version)
	}
	if skill, err = client.Skills.Get(ctx, skill.ID); err != nil || skill.DefaultVersion != "2" {
		t.Errorf("%+v, %v", skill, err)
	}
	res, err := client.Skills.Versions.Content.Get(ctx, skill.ID, "1")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !bytes.HasPrefix(archive, []byte("PK\x03\x04")) {
		t.Errorf("content: %d bytes, %v", len(archive), err)
	}
	zipped, err := client.Skills.New(ctx, openaisdk.SkillNewParams{Files: openaisdk.SkillNewParamsFilesUnion{
		OfFile: openaisdk.File(bytes.NewReader(archive), "tables.zip", "application/zip"),
	}})
	if err != nil || zipped.Description != "one" {
		t.Fatalf("from a zip: %+v, %v", zipped, err)
	}
	n := 0
	pager := client.Skills.ListAutoPaging(ctx, openaisdk.SkillListParams{Limit: openaisdk.Int(1)})
	for pager.Next() {
		n++
	}
	if pager.Err() != nil || n != 2 {
		t.Errorf("%d skills listed, %v", n, pager.Err())
	}
	if _, err := client.Skills.Update(ctx, skill.ID, openaisdk.SkillUpdateParams{DefaultVersion: "1"}); err != nil {
		t.Error(err)
	}
	gone, err := client.Skills.Versions.Delete(ctx, skill.ID, "2")
	if err != nil || !gone.Deleted || gone.Version != "2" {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := client.Skills.Delete(ctx, skill.ID); err != nil {
		t.Error(err)
	}
	_, err = client.Skills.Get(ctx, skill.ID)
	if e := new(openaisdk.Error); !errors.As(err, &e) || e.StatusCode != 404 || !strings.Contains(e.Message, skill.ID) {
		t.Errorf("get a deleted one: %v", err)
	}
}

// TestAnthropicSDK drives the surface with Anthropic's own client, which speaks the newer dialect, from both of its namespaces.
func TestAnthropicSDK(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	ctx := t.Context()
	client := anthropicsdk.NewClient(anthropicoption.WithBaseURL(s.url), anthropicoption.WithAPIKey("k"))
	folder := func(text string) []io.Reader {
		return []io.Reader{
			anthropicsdk.File(strings.NewReader(manifest("tables", text)), "tables/SKILL.md", "text/markdown"),
			anthropicsdk.File(strings.NewReader("print(1)\n"), "tables/scripts/a.py", "text/x-python"),
		}
	}
	skill, err := client.Skills.New(ctx, anthropicsdk.SkillNewParams{Files: folder("one"), DisplayName: anthropicsdk.String("Tables")})
	if err != nil {
		t.Fatal(err)
	}
	if skill.DisplayName != "Tables" || skill.Source.Type != "custom" || skill.LatestVersionID == "" {
		t.Errorf("created %+v", skill)
	}
	version, err := client.Skills.Versions.New(ctx, skill.ID, anthropicsdk.SkillVersionNewParams{Files: folder("two")})
	if err != nil {
		t.Fatal(err)
	}
	latest, err := client.Skills.Versions.Get(ctx, "latest", anthropicsdk.SkillVersionGetParams{SkillID: skill.ID})
	if err != nil || latest.ID != version.ID || latest.Description != "two" {
		t.Errorf("latest %+v, %v", latest, err)
	}
	res, err := client.Beta.Skills.Versions.Download(ctx, version.ID, anthropicsdk.BetaSkillVersionDownloadParams{SkillID: skill.ID})
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !bytes.HasPrefix(archive, []byte("PK\x03\x04")) {
		t.Errorf("download: %d bytes, %v", len(archive), err)
	}
	if _, err := client.Skills.New(ctx, anthropicsdk.SkillNewParams{Files: []io.Reader{anthropicsdk.File(bytes.NewReader(archive), "t.zip", "application/zip")}}); err != nil {
		t.Error("from a zip:", err)
	}
	n := 0
	pager := client.Skills.ListAutoPaging(ctx, anthropicsdk.SkillListParams{Limit: anthropicsdk.Int(1)})
	for pager.Next() {
		n++
	}
	if pager.Err() != nil || n != 2 {
		t.Errorf("%d skills listed, %v", n, pager.Err())
	}
	if _, err := client.Skills.Versions.Delete(ctx, version.ID, anthropicsdk.SkillVersionDeleteParams{SkillID: skill.ID}); err != nil {
		t.Error(err)
	}
	if gone, err := client.Skills.Delete(ctx, skill.ID, anthropicsdk.SkillDeleteParams{}); err != nil || gone.ID != skill.ID {
		t.Errorf("%+v, %v", gone, err)
	}
	_, err = client.Skills.Get(ctx, skill.ID, anthropicsdk.SkillGetParams{})
	if e := new(anthropicsdk.Error); !errors.As(err, &e) || e.StatusCode != 404 || !strings.Contains(e.Error(), "not_found_error") {
		t.Errorf("get a deleted one: %v", err)
	}
}
