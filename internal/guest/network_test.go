package guest

import "testing"

func TestCertificates(t *testing.T) {
	const a, b = "-----BEGIN CERTIFICATE-----\na\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nb\n-----END CERTIFICATE-----"
	if got, want := certificates(a+"\n"+b, b+"\n\n"+a+"\n", "", "own"), a+"\n"+b+"\nown\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
