// Package telemetry has the metrics of the program and the decorators that count: around the agent (turns, rounds, tokens) and around
// the sandbox backend (sandboxes, seconds). What it decorates does not know of it. Only package server and the wiring import it.
package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is one registry. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec   // route, status
	durations *prometheus.HistogramVec // route
	inFlight  prometheus.Gauge

	turns       *prometheus.CounterVec // model, outcome
	rounds      prometheus.Counter
	hostedCalls *prometheus.CounterVec // tool, outcome
	tokens      *prometheus.CounterVec // model, kind

	sandboxStarts  *prometheus.CounterVec // outcome
	sandboxLive    prometheus.Gauge
	sandboxSeconds prometheus.Counter

	egress *prometheus.CounterVec // outcome
}

// Egress counts a connection of a program to the network, by its outcome: ok, refused or failed.
func (m *Metrics) Egress(outcome string) { m.egress.WithLabelValues(outcome).Inc() }

// New makes the metrics of one process. version goes into lathe_build_info.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lathe_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lathe_http_request_duration_seconds", Help: "Time from a request to the end of its answer, streams included.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lathe_http_requests_in_flight", Help: "Requests being answered."}),
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lathe_turns_total", Help: "Turns that the loop answered, by the model that was asked for and how they ended.",
		}, []string{"model", "outcome"}),
		rounds: prometheus.NewCounter(prometheus.CounterOpts{Name: "lathe_rounds_total", Help: "Calls of a model within turns."}),
		hostedCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lathe_hosted_calls_total", Help: "Hosted tool calls, by tool and status.",
		}, []string{"tool", "status"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lathe_tokens_total", Help: "Tokens that models reported: input (cached included), cached, output (reasoning included), reasoning.",
		}, []string{"model", "kind"}),
		sandboxStarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lathe_sandbox_starts_total", Help: "Sandboxes started, by outcome.",
		}, []string{"outcome"}),
		sandboxLive:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "lathe_sandboxes_live", Help: "Sandboxes that exist now."}),
		sandboxSeconds: prometheus.NewCounter(prometheus.CounterOpts{Name: "lathe_sandbox_seconds_total", Help: "Time that code ran."}),
		egress: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lathe_egress_requests_total", Help: "Requests and tunnels of programs to the network, by outcome.",
		}, []string{"outcome"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lathe_build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.durations, m.inFlight, m.turns, m.rounds, m.hostedCalls, m.tokens,
		m.sandboxStarts, m.sandboxLive, m.sandboxSeconds, m.egress, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Gauge shows what value returns whenever the metrics are read. Call it once for a name.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Handler serves the metrics in Prometheus's text form.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Request counts a request from its start. The function it returns is called at its end. route must come from a closed set.
func (m *Metrics) Request(route string) (done func(status int)) {
	start := time.Now()
	m.inFlight.Inc()
	return func(status int) {
		m.inFlight.Dec()
		m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
		m.durations.WithLabelValues(route).Observe(time.Since(start).Seconds())
	}
}
