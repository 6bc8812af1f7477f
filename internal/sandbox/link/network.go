package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/guest/tunnel"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// network is that of a connected sandbox, from Connect until Disconnect has been answered.
type network struct {
	mux     *tunnel.Mux
	cancel  context.CancelFunc
	serving sync.WaitGroup
	answer  chan error // one answer of the guest to Connect or Disconnect

	// Guarded by Link.mu.
	awaits proto.Type        // Connected or Disconnected while the guest has not answered, else 0
	env    map[string]string // once the guest listens
}

// Connect has the contract of sandbox.Sandbox.Connect. A guest that has not answered when ctx ends is given up, and the link with it.
func (l *Link) Connect(ctx context.Context, n *sandbox.Network) error {
	return l.change(ctx, func() error { //nolint:contextcheck // connections outlive the request that began the sandbox
		if err := l.disconnect(); err != nil {
			return err
		}
		serveCtx, cancel := context.WithCancel(context.Background())
		net := &network{cancel: cancel, answer: make(chan error, 1), awaits: proto.Connected, env: maps.Clone(n.Env)}
		net.mux = tunnel.New(l.sendStream, func(s *tunnel.Stream) {
			net.serving.Go(func() {
				defer s.Close()
				n.Serve(serveCtx, s)
			})
		})
		l.mu.Lock()
		l.network = net
		l.mu.Unlock()
		l.wg.Go(func() {
			select {
			case <-l.done:
			case <-serveCtx.Done():
			}
			cancel()
			net.mux.Close()
			net.serving.Wait()
		})
		f, err := proto.EncodeJSON(proto.Connect, 0, proto.ConnectCall{Roots: n.Roots, Trust: n.Trust})
		if err != nil {
			return err
		}
		err = l.ask(net, f)
		if err != nil {
			return errors.Join(err, l.disconnect())
		}
		return nil
	})
}

// Disconnect ends the network, if there is one. Once it has returned nil the guest is silent until the next call, as a checkpoint needs
// it; programs that try get no connection.
func (l *Link) Disconnect(ctx context.Context) error {
	return l.change(ctx, func() error { return l.disconnect() })
}

// change runs fn alone, and ends the link if fn has not returned when ctx ends.
func (l *Link) change(ctx context.Context, fn func() error) error {
	select {
	case l.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.done:
		return l.reason()
	}
	defer func() { <-l.changing }()
	stop := context.AfterFunc(ctx, func() { l.end(errors.New("the guest does not change its network")) })
	defer stop()
	if err := fn(); err != nil {
		return fmt.Errorf("network of the sandbox: %w", err)
	}
	return nil
}

func (l *Link) disconnect() error {
	l.mu.Lock()
	net := l.network
	if net != nil {
		net.awaits, net.env = proto.Disconnected, nil
	}
	l.mu.Unlock()
	if net == nil {
		return nil
	}
	net.cancel()
	net.mux.Close() // nothing of a stream is sent behind Disconnect
	net.serving.Wait()
	if err := l.ask(net, proto.Frame{Type: proto.Disconnect}); err != nil {
		return err
	}
	l.mu.Lock()
	l.network = nil
	l.mu.Unlock()
	return nil
}

// ask sends a frame and waits for the guest's answer.
func (l *Link) ask(net *network, f proto.Frame) error {
	select {
	case l.out <- f:
	case <-l.done:
		return l.reason()
	}
	select {
	case err := <-net.answer:
		return err
	case <-l.done:
		return l.reason()
	}
}

// sendStream hands a stream's frame to the writer and returns when it has been written.
func (l *Link) sendStream(f proto.Frame) error {
	select {
	case l.data <- f:
	case <-l.done:
		return l.reason()
	}
	select {
	case <-l.sent:
		return nil
	case <-l.done:
		return l.reason()
	}
}

// takeNetwork takes a frame that has to do with the network.
func (l *Link) takeNetwork(f proto.Frame) error {
	l.mu.Lock()
	net := l.network
	if net == nil {
		l.mu.Unlock()
		return fmt.Errorf("frame of type %d without a network", f.Type)
	}
	awaited := net.awaits
	if f.Type == proto.Connected || f.Type == proto.Disconnected {
		defer l.mu.Unlock()
		if f.Type != awaited {
			return fmt.Errorf("unexpected frame of type %d", f.Type)
		}
		net.awaits = 0
		if f.Type == proto.Disconnected {
			net.answer <- nil
			return nil
		}
		return net.connected(f)
	}
	l.mu.Unlock()
	if awaited == proto.Disconnected && f.Type >= proto.Open {
		return nil // it was under way
	}
	return net.mux.Take(f)
}

// connected takes the answer to Connect; Link.mu is held.
func (net *network) connected(f proto.Frame) error {
	var info proto.ConnectedInfo
	if err := proto.DecodeJSON(f, &info); err != nil {
		return err
	}
	if info.Error != "" {
		net.env = nil
		net.answer <- errors.New("the guest: " + clean(clip(info.Error, 1<<10)))
		return nil
	}
	if info.Port < 1 || info.Port > 65535 || len(info.Bundle) > 1<<10 || !path.IsAbs(info.Bundle) || strings.ContainsAny(info.Bundle, "\x00\n\r") {
		return errors.New("an answer to connect that cannot be")
	}
	env := environ(info)
	maps.Copy(env, net.env)
	net.env = env
	net.answer <- nil
	return nil
}

// networkEnv is what calls get in their environment; nil without a network.
func (l *Link) networkEnv() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.network == nil || l.network.awaits != 0 {
		return nil
	}
	return l.network.env
}

// environ tells programs of the proxy and of the certificates to trust, in the names that pip, requests, curl, git and Node look for.
func environ(info proto.ConnectedInfo) map[string]string {
	proxy, direct := "http://127.0.0.1:"+strconv.Itoa(info.Port), "localhost,127.0.0.1,::1"
	env := map[string]string{
		"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": direct,
		"NODE_USE_ENV_PROXY": "1",
		// What pip installs goes to HOME: the rest of the image is read-only, and Debian's marker would refuse even that.
		"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"} {
		env[strings.ToLower(name)] = env[name]
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "GIT_SSL_CAINFO",
	} {
		env[name] = info.Bundle
	}
	return env
}
