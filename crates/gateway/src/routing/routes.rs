//! Which cluster and class a request belongs to.
//!
//! The routes of all clusters, compiled: by exact host, by the domain of a wildcard, and for any host. Among several routes
//! that match, the most specific wins: exact host before wildcard (the longest first) before none, then an exact path before
//! a prefix, the longest first, then one with a header before one without, then the first in the config.

use std::collections::HashMap;

use http::HeaderMap;
use http::header::HeaderName;
use weal_model::RouteSpec;

/// Compiled routes to targets of any kind.
#[derive(Debug)]
pub(crate) struct Routes<T> {
    hosts: HashMap<Box<str>, Vec<Route<T>>>,
    /// By what follows `*.`.
    wildcards: HashMap<Box<str>, Vec<Route<T>>>,
    any_host: Vec<Route<T>>,
}

#[derive(Debug)]
struct Route<T> {
    path: PathMatch,
    header: Option<(HeaderName, Option<Box<str>>)>,
    target: T,
}

/// Ordered from the most to the least specific by [`PathMatch::rank`].
#[derive(Debug)]
enum PathMatch {
    Exact(Box<str>),
    /// `/x` of `/x/*`: matches `/x` itself and everything below it.
    Below(Box<str>),
    Any,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self { hosts: HashMap::new(), wildcards: HashMap::new(), any_host: Vec::new() }
    }
}

impl<T> Routes<T> {
    /// Compiles `routes`. A header name that no request can have makes its route match nothing.
    pub fn compile(routes: impl IntoIterator<Item = (RouteSpec, T)>) -> Self {
        let mut compiled = Self::default();
        for (spec, target) in routes {
            let header = match spec.header {
                None => None,
                Some(header) => match HeaderName::from_bytes(header.name.as_bytes()) {
                    Ok(name) => Some((name, header.value.map(String::into_boxed_str))),
                    Err(_) => continue,
                },
            };
            let route = Route { path: PathMatch::compile(spec.path.as_deref()), header, target };
            let host = spec.host.map(|host| host.to_ascii_lowercase());
            let list = match host.as_deref() {
                None | Some("*") => &mut compiled.any_host,
                Some(host) => match host.strip_prefix("*.") {
                    Some(domain) => compiled.wildcards.entry(domain.into()).or_default(),
                    None => compiled.hosts.entry(host.into()).or_default(),
                },
            };
            list.push(route);
        }
        let lists = compiled.hosts.values_mut().chain(compiled.wildcards.values_mut());
        for list in lists.chain([&mut compiled.any_host]) {
            // Stable, so that the first in the config wins among equals.
            list.sort_by_key(|route| (route.path.rank(), route.header.is_none()));
        }
        compiled
    }

    /// The target for a request. `host` is without port and in lower case.
    pub fn find(&self, host: &str, path: &str, headers: &HeaderMap) -> Option<&T> {
        let among = |list: &'_ [Route<T>]| list.iter().position(|route| route.matches(path, headers));
        if let Some(list) = self.hosts.get(host)
            && let Some(index) = among(list)
        {
            return Some(&list[index].target);
        }
        if !self.wildcards.is_empty() {
            let mut rest = host;
            while let Some((_, domain)) = rest.split_once('.') {
                if let Some(list) = self.wildcards.get(domain)
                    && let Some(index) = among(list)
                {
                    return Some(&list[index].target);
                }
                rest = domain;
            }
        }
        among(&self.any_host).map(|index| &self.any_host[index].target)
    }
}

impl<T> Route<T> {
    fn matches(&self, path: &str, headers: &HeaderMap) -> bool {
        let header_matches = || match &self.header {
            None => true,
            Some((name, None)) => headers.contains_key(name),
            Some((name, Some(value))) => headers.get_all(name).iter().any(|found| found.as_bytes() == value.as_bytes()),
        };
        self.path.matches(path) && header_matches()
    }
}

impl PathMatch {
    fn compile(path: Option<&str>) -> Self {
        match path {
            None | Some("*" | "/*" | "") => Self::Any,
            Some(path) => match path.strip_suffix("/*") {
                Some(prefix) => Self::Below(prefix.into()),
                None => Self::Exact(path.into()),
            },
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => path == &**exact,
            Self::Below(prefix) => path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }

    fn rank(&self) -> (u8, std::cmp::Reverse<usize>) {
        match self {
            Self::Exact(path) => (0, std::cmp::Reverse(path.len())),
            Self::Below(path) => (1, std::cmp::Reverse(path.len())),
            Self::Any => (2, std::cmp::Reverse(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use weal_model::HeaderMatch;

    use super::*;

    fn route(host: Option<&str>, path: Option<&str>, header: Option<(&str, Option<&str>)>) -> RouteSpec {
        let header = header.map(|(name, value)| HeaderMatch { name: name.into(), value: value.map(Into::into) });
        RouteSpec { host: host.map(Into::into), path: path.map(Into::into), header, class: "gold".into() }
    }

    #[test]
    fn the_most_specific_route_wins() {
        let routes = Routes::compile([
            (route(None, None, None), "any"),
            (route(Some("*.example"), None, None), "wild"),
            (route(Some("*.shop.example"), None, None), "longer wild"),
            (route(Some("a.shop.example"), Some("/report/*"), None), "report"),
            (route(Some("a.shop.example"), Some("/report/x/*"), None), "deeper report"),
            (route(Some("a.shop.example"), Some("/report/today"), None), "today"),
            (route(Some("a.shop.example"), Some("/report/*"), Some(("x-batch", None))), "batch report"),
            (route(Some("a.shop.example"), Some("/report/*"), Some(("x-batch", Some("2")))), "never: the one before it is first"),
        ]);
        let plain = HeaderMap::new();
        let mut batch = HeaderMap::new();
        batch.insert("x-batch", "2".parse().unwrap());
        for (host, path, headers, wanted) in [
            ("a.shop.example", "/report/today", &plain, "today"),
            ("a.shop.example", "/report/y", &plain, "report"),
            ("a.shop.example", "/report", &plain, "report"),
            ("a.shop.example", "/reporting", &plain, "longer wild"),
            ("a.shop.example", "/report/x/1", &plain, "deeper report"),
            ("a.shop.example", "/report/y", &batch, "batch report"),
            ("a.shop.example", "/", &plain, "longer wild"),
            ("b.example", "/", &plain, "wild"),
            ("x.y.b.example", "/", &plain, "wild"),
            ("example", "/", &plain, "any"),
            ("", "/", &plain, "any"),
        ] {
            assert_eq!(routes.find(host, path, headers), Some(&wanted), "{host}{path}");
        }
    }

    #[test]
    fn nothing_matches_when_nothing_should() {
        let routes = Routes::compile([(route(Some("shop.example"), Some("/only"), None), ())]);
        let headers = HeaderMap::new();
        assert!(routes.find("shop.example", "/other", &headers).is_none());
        assert!(routes.find("other.example", "/only", &headers).is_none());
    }
}
