//! Why a gateway answers a request itself.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a gateway answered a request itself, in a word for programs: the answer's `x-weal-reason`, `reason` in the access log, and a label of
/// `weal_gateway_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OwnAnswer {
    /// What proves to a certificate authority that a host is ours.
    AcmeChallenge,
    /// The body is longer than the route takes.
    BodyTooLarge,
    /// The client's address has as many connections as it may.
    ClientConnections,
    /// The client went away before it had an answer.
    ClientGone,
    /// The client's address sends more requests than it may.
    ClientRate,
    /// The client's address has its part of the application's seats.
    ClientSeats,
    /// The client stopped in the middle of its request.
    ClientTimeout,
    /// The client sends its request's body too slowly.
    ClientTooSlow,
    /// A request of a class that goes first took its place in the queue.
    Displaced,
    /// The instance broke off before its answer was whole.
    InstanceBrokeOff,
    /// The instance's answer cannot be passed on.
    InstanceMalformed,
    /// The instance took no connection.
    InstanceRefused,
    /// The instance did not answer in time.
    InstanceTimeout,
    /// It could not have met its goal any more.
    Late,
    /// The route is closed for maintenance.
    Maintenance,
    /// The request cannot be read.
    Malformed,
    /// The request's body cannot be read; an instance may have seen its beginning.
    MalformedBody,
    /// Its client wants that it goes no further.
    MaxForwards,
    /// No instance was ready in time.
    NoInstance,
    /// No route matches.
    NoRoute,
    /// No seat became free in time.
    NoSeat,
    /// The proxy before the gateway did not say whose connection it is.
    ProxyHeader,
    /// As many requests wait as may.
    QueueFull,
    /// The client is sent elsewhere.
    Redirect,
    /// A port has as many connections as it may.
    TooManyConnections,
    /// A port has as many sessions of datagrams as it may.
    TooManySessions,
    /// As many requests wait for their bodies as may.
    TooManyUploads,
    /// The application cannot run now.
    Unavailable,
    /// One that this version does not know: the gateway runs a newer one.
    #[serde(other)]
    Other,
}

impl OwnAnswer {
    /// As programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AcmeChallenge => "acme-challenge",
            Self::BodyTooLarge => "body-too-large",
            Self::ClientConnections => "client-connections",
            Self::ClientGone => "client-gone",
            Self::ClientRate => "client-rate",
            Self::ClientSeats => "client-seats",
            Self::ClientTimeout => "client-timeout",
            Self::ClientTooSlow => "client-too-slow",
            Self::Displaced => "displaced",
            Self::InstanceBrokeOff => "instance-broke-off",
            Self::InstanceMalformed => "instance-malformed",
            Self::InstanceRefused => "instance-refused",
            Self::InstanceTimeout => "instance-timeout",
            Self::Late => "late",
            Self::Maintenance => "maintenance",
            Self::Malformed => "malformed",
            Self::MalformedBody => "malformed-body",
            Self::MaxForwards => "max-forwards",
            Self::NoInstance => "no-instance",
            Self::NoRoute => "no-route",
            Self::NoSeat => "no-seat",
            Self::ProxyHeader => "proxy-header",
            Self::QueueFull => "queue-full",
            Self::Redirect => "redirect",
            Self::TooManyConnections => "too-many-connections",
            Self::TooManySessions => "too-many-sessions",
            Self::TooManyUploads => "too-many-uploads",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for OwnAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_on_the_wire_and_one_of_a_newer_gateway_is_taken() {
        for reason in [OwnAnswer::ClientTooSlow, OwnAnswer::NoRoute, OwnAnswer::InstanceBrokeOff, OwnAnswer::Late] {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.as_str()));
        }
        assert_eq!(serde_json::from_str::<OwnAnswer>("\"too-early\"").unwrap(), OwnAnswer::Other);
    }
}
