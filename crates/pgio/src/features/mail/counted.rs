//! What is counted of messages and recipients, as metrics. Latencies of deliveries are the core's.

use pgio_results::latency::{Class, Work};
use pgio_results::metrics::Direction::{HigherIsFaster, LowerIsFaster, Neutral};
use pgio_results::metrics::{Group, Kind, MetricDef, def, for_work};

pub(super) const METRICS: &[Group] = &[
    (
        "messages_per_minute",
        &[for_work(
            Work::Messages,
            def(
                "mail_bytes_per_second",
                "bytes/s",
                HigherIsFaster,
                "bytes of these messages, as sent",
            ),
        )],
    ),
    (
        "delivery_latency_max",
        &[
            def("mail_bytes_mean", "bytes", Neutral, "mean size of these messages"),
            def(
                "mail_offered_per_minute",
                "messages/min",
                Neutral,
                "the rate requested by messages_rate",
            ),
            def(
                "mail_rate_reached",
                "%",
                Neutral,
                "share of the messages due by messages_rate that were started",
            ),
            MetricDef {
                kind: Kind::Mean(Class::Delivery),
                ..def(
                    "mail_lag_mean",
                    "s",
                    LowerIsFaster,
                    "mean delay from a message's intended start to its actual start",
                )
            },
            def(
                "mail_recipients",
                "recipients",
                Neutral,
                "recipients for which a message was accepted",
            ),
            def("mail_refused", "recipients", Neutral, "recipients refused permanently (5xx)"),
            def(
                "mail_deferred",
                "answers",
                Neutral,
                "recipients deferred (4xx), counted each time",
            ),
            def("mail_unknown", "answers", Neutral, "missing answers to commands that were sent"),
            def(
                "mail_undelivered",
                "recipients",
                Neutral,
                "recipients abandoned after six attempts",
            ),
            def(
                "mail_left_over",
                "recipients",
                Neutral,
                "recipients still waiting for a retry when the window ended",
            ),
            def("mail_retries", "attempts", Neutral, "attempts after the first"),
            def(
                "mail_dropped_connections",
                "connections",
                Neutral,
                "connections that ended unexpectedly",
            ),
        ],
    ),
];
