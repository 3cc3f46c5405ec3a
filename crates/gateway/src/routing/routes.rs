//! Which cluster and class a request belongs to.
//!
//! The routes of all clusters, compiled: by exact host, by the domain of a wildcard, and for any host. Among several routes
//! that match, the most specific wins: exact host before wildcard (the longest first) before none, then an exact path before
//! a prefix, the longest first, then one with a header before one without, then the first in the config.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use http::HeaderMap;
use http::header::HeaderName;
use weal_model::RouteSpec;
use weal_model::host::read_host;

use super::path::{normalize, without_parameters};

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
    /// True when it is compared with normalised paths.
    is_normalized: bool,
    /// True when its own path has a parameter. Others are compared with paths from which parameters are cut off.
    has_parameter: bool,
    header: Option<(HeaderName, Option<Box<str>>)>,
    target: T,
}

/// A request's path, as it came and in its normal forms, once a route has asked for them.
struct Paths<'a> {
    raw: &'a str,
    normal: OnceCell<Cow<'a, str>>,
    /// The normal form without parameters, where it has any.
    plain: OnceCell<Option<String>>,
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
    /// Compiles `routes`, each with whether it is compared with normalised paths. A header name that no request can have makes its route
    /// match nothing, as does a host.
    pub fn compile(routes: impl IntoIterator<Item = (RouteSpec, bool, T)>) -> Self {
        let mut compiled = Self::default();
        for (spec, is_normalized, target) in routes {
            let header = match spec.header {
                None => None,
                Some(header) => match HeaderName::from_bytes(header.name.as_bytes()) {
                    Ok(name) => Some((name, header.value.map(String::into_boxed_str))),
                    Err(_) => continue,
                },
            };
            let path = spec.path.as_deref().map(|path| if is_normalized { normalize(path) } else { path.into() });
            let has_parameter = path.as_deref().is_some_and(|path| path.contains(';'));
            let route = Route { path: PathMatch::compile(path.as_deref()), is_normalized, has_parameter, header, target };
            let list = match spec.host.as_deref() {
                None | Some("*") => &mut compiled.any_host,
                Some(host) => {
                    let (lists, host) = match host.strip_prefix("*.") {
                        Some(domain) => (&mut compiled.wildcards, domain),
                        None => (&mut compiled.hosts, host),
                    };
                    let Ok(host) = read_host(host) else { continue };
                    lists.entry(host.as_ref().into()).or_default()
                }
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

    /// The target for a request. `host` is without port, as [`read_host`] spells it.
    pub fn find(&self, host: &str, path: &str, headers: &HeaderMap) -> Option<&T> {
        let path = &Paths { raw: path, normal: OnceCell::new(), plain: OnceCell::new() };
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
    fn matches(&self, path: &Paths<'_>, headers: &HeaderMap) -> bool {
        let path_matches = || match &self.path {
            PathMatch::Any => true,
            matched if !self.is_normalized => matched.matches(path.raw),
            matched if self.has_parameter => matched.matches(path.normal()),
            matched => matched.matches(path.plain()),
        };
        let header_matches = || match &self.header {
            None => true,
            Some((name, None)) => headers.contains_key(name),
            Some((name, Some(value))) => headers.get_all(name).iter().any(|found| found.as_bytes() == value.as_bytes()),
        };
        path_matches() && header_matches()
    }
}

impl Paths<'_> {
    fn normal(&self) -> &str {
        self.normal.get_or_init(|| normalize(self.raw))
    }

    fn plain(&self) -> &str {
        let plain = || without_parameters(self.raw).map(|plain| normalize(&plain).into_owned());
        self.plain.get_or_init(plain).as_deref().unwrap_or_else(|| self.normal())
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
        RouteSpec { host: host.map(Into::into), path: path.map(Into::into), header, ..RouteSpec::any("gold".into()) }
    }

    #[test]
    fn the_most_specific_route_wins() {
        let routes = Routes::compile([
            (route(None, None, None), true, "any"),
            (route(Some("*.example"), None, None), true, "wild"),
            (route(Some("*.shop.example"), None, None), true, "longer wild"),
            (route(Some("a.shop.example"), Some("/report/*"), None), true, "report"),
            (route(Some("a.shop.example"), Some("/report/x/*"), None), true, "deeper report"),
            (route(Some("a.shop.example"), Some("/report/today"), None), true, "today"),
            (route(Some("a.shop.example"), Some("/report/*"), Some(("x-batch", None))), true, "batch report"),
            (
                route(Some("a.shop.example"), Some("/report/*"), Some(("x-batch", Some("2")))),
                true,
                "never: the one before it is first",
            ),
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
        let routes = Routes::compile([(route(Some("shop.example"), Some("/only"), None), true, ())]);
        let headers = HeaderMap::new();
        assert!(routes.find("shop.example", "/other", &headers).is_none());
        assert!(routes.find("other.example", "/only", &headers).is_none());
    }

    #[test]
    fn a_route_is_not_passed_by_by_another_spelling_of_its_path_or_host() {
        let routes = Routes::compile([
            (route(None, None, None), true, "any"),
            (route(None, Some("/admin/*"), None), true, "admin"),
            (route(None, Some("/raw/*"), None), false, "raw"),
            (route(Some("[0::1]"), None, None), true, "loopback"),
            (route(Some("Shop.Example."), None, None), true, "shop"),
        ]);
        let headers = HeaderMap::new();
        for (host, path, wanted) in [
            ("x", "//admin", "admin"),
            ("x", "/./admin", "admin"),
            ("x", "/%61dmin/x", "admin"),
            ("x", "/x/../admin", "admin"),
            ("x", "/admin%2Fx", "any"),
            ("x", "/raw/x", "raw"),
            ("x", "/r%61w/x", "any"),
            ("x", "/raw/../x", "raw"),
            ("[::1]", "/", "loopback"),
            ("shop.example", "/", "shop"),
        ] {
            assert_eq!(routes.find(host, path, &headers), Some(&wanted), "{host}{path}");
        }
    }
}
