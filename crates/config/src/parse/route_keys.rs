//! The keys of a route, whatever it leads to.

/// Every key of a route.
pub(super) const KEYS: [&str; 19] = [
    "tcp",
    "udp",
    "host",
    "path",
    "header",
    "class",
    "idle-timeout",
    "total-timeout",
    "tunnel-idle-timeout",
    "strip-prefix",
    "redirect",
    "request-headers",
    "response-headers",
    "body-limit",
    "maintenance",
    "error-pages",
    "accept-proxy",
    "compression",
    "client-min-rate",
];
