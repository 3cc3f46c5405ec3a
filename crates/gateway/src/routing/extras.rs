//! What a route does besides passing requests on, in the form that requests use.

use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use weal_model::{HeaderEdits, RedirectRule, RouteExtras};

use super::pages::{Page, Pages};
use super::path::{below, strip};
use crate::http::forged::remove_twins;

const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// What a route does. Nearly no route does any of it.
#[derive(Debug)]
pub(crate) struct Extras {
    strip_prefix: Option<Prefix>,
    redirect: Option<RedirectRule>,
    request_headers: Edits,
    pub response_headers: Edits,
    /// Bytes.
    pub body_limit: Option<u64>,
    pub is_closed: bool,
    /// The exact statuses first.
    pages: Vec<(Statuses, Arc<Page>)>,
}

/// What is removed from the start of a path.
#[derive(Debug)]
struct Prefix {
    text: Box<str>,
    /// The same, for instances that make links from it.
    value: HeaderValue,
}

/// Changes of a head.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
}

/// Which statuses a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Statuses {
    One(u16),
    /// `5xx`, by its first digit.
    Hundred(u16),
}

impl Extras {
    /// `None` when nothing is done.
    pub(super) fn compile(spec: &RouteExtras, pages: &mut Pages) -> Option<Self> {
        // Those are no concern of a single request's.
        let elsewhere = RouteExtras { accept_proxy: spec.accept_proxy, compression: spec.compression, ..RouteExtras::default() };
        if *spec == elsewhere {
            return None;
        }
        let page = |(name, path): (&String, &String)| Some((Statuses::read(name)?, pages.page(path)?));
        let mut pages: Vec<_> = spec.error_pages.iter().filter_map(page).collect();
        pages.sort_by_key(|(statuses, _)| *statuses);
        Some(Self {
            strip_prefix: spec.strip_prefix.as_deref().and_then(Prefix::new),
            redirect: spec.redirect.clone(),
            request_headers: Edits::compile(&spec.request_headers),
            response_headers: Edits::compile(&spec.response_headers),
            body_limit: spec.body_limit.map(|limit| limit.0),
            is_closed: spec.maintenance,
            pages,
        })
    }

    /// What is said instead of the gateway's own line.
    pub fn page(&self, status: StatusCode) -> Option<&Page> {
        self.pages.iter().find(|(statuses, _)| statuses.has(status)).map(|(_, page)| &**page)
    }

    /// Where a request for `path` is sent, when it is. `$path` is what an instance would get, with its query.
    pub fn redirect(&self, host: &str, path: &Uri) -> Option<(StatusCode, HeaderValue)> {
        let rule = self.redirect.as_ref()?;
        let path = path.path_and_query().map_or("/", PathAndQuery::as_str);
        // `OPTIONS *` asks for no path.
        let path = if path.starts_with('/') { path } else { "/" };
        let location = rule.to.replace("$host", host).replace("$path", path);
        Some((StatusCode::from_u16(rule.status).ok()?, HeaderValue::try_from(location).ok()?))
    }

    /// The target without the prefix. Where routes are chosen by normalised paths, it is the normalised one that loses the prefix: not all other
    /// spellings begin with it.
    pub fn strip(&self, target: &Uri, is_normalized: bool) -> Option<Uri> {
        let prefix = &*self.strip_prefix.as_ref()?.text;
        let path = target.path();
        let rest = if is_normalized { strip(path, prefix)? } else { below(path, prefix)?.into() };
        let rest = if rest.is_empty() { "/" } else { &*rest };
        let whole = match target.query() {
            Some(query) => PathAndQuery::try_from(format!("{rest}?{query}")),
            None => PathAndQuery::try_from(rest),
        };
        whole.ok().map(Uri::from)
    }

    /// Tells an instance what was stripped, and makes the changes of the config.
    pub fn edit_request(&self, headers: &mut HeaderMap) {
        if let Some(prefix) = &self.strip_prefix {
            headers.insert(X_FORWARDED_PREFIX, prefix.value.clone());
        }
        // Before they are set: what is set may be spelt with underscores.
        remove_twins(headers, self.request_headers.names());
        self.request_headers.apply(headers);
    }
}

impl Prefix {
    fn new(text: &str) -> Option<Self> {
        Some(Self { text: text.into(), value: HeaderValue::try_from(text).ok()? })
    }
}

impl Edits {
    /// What no head can have is left out: the config says so where it is read.
    fn compile(spec: &HeaderEdits) -> Self {
        let name = |name: &String| HeaderName::try_from(name).ok();
        let set = |(field, value): (&String, &String)| Some((name(field)?, HeaderValue::try_from(value).ok()?));
        Self { remove: spec.remove.iter().filter_map(name).collect(), set: spec.set.iter().filter_map(set).collect() }
    }

    /// Every field that is changed.
    fn names(&self) -> impl Iterator<Item = &HeaderName> + Clone {
        self.remove.iter().chain(self.set.iter().map(|(name, _)| name))
    }

    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
    }
}

impl Statuses {
    /// A status, or its first digit and two letters.
    fn read(text: &str) -> Option<Self> {
        let digit = || text.chars().next()?.to_digit(10).map(|digit| Self::Hundred(digit as u16));
        text.parse().map(Self::One).ok().or_else(digit)
    }

    fn has(self, status: StatusCode) -> bool {
        match self {
            Self::One(one) => status.as_u16() == one,
            Self::Hundred(digit) => status.as_u16() / 100 == digit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(spec: RouteExtras) -> Extras {
        Extras::compile(&spec, &mut Pages::beside(std::path::Path::new("/var/lib/weal"))).unwrap()
    }

    #[test]
    fn a_prefix_is_stripped_from_every_spelling_of_it() {
        let extras = extras(RouteExtras { strip_prefix: Some("/api".into()), ..RouteExtras::default() });
        let strip =
            |target: &str, is_normalized| extras.strip(&target.parse().unwrap(), is_normalized).map(|uri| uri.to_string());
        for (target, stripped) in [
            ("/api", "/"),
            ("/api/", "/"),
            ("/api?x=1", "/?x=1"),
            ("/api/a%2Fb?x", "/a%2Fb?x"),
            ("//api//x", "/x"),
            ("/%61pi/x", "/x"),
            ("/api/..//api/x", "/x"),
            ("/api;v=1/x;y=2?z", "/x;y=2?z"),
        ] {
            assert_eq!(strip(target, true).as_deref(), Some(stripped), "{target}");
        }
        assert_eq!(strip("/apis", true), None);
        assert_eq!(strip("/%61pi/x", false), None);
        assert_eq!(strip("/api;v=1/x", false), None);
        assert_eq!(strip("/api//x", false).as_deref(), Some("//x"));
    }

    #[test]
    fn a_redirect_fills_in_host_and_path() {
        let rule = RedirectRule { to: "https://$host:8443$path".into(), status: 308 };
        let extras = extras(RouteExtras { redirect: Some(rule), ..RouteExtras::default() });
        let (status, location) = extras.redirect("shop.example", &"/a?b=$host".parse().unwrap()).unwrap();
        assert_eq!((status.as_u16(), location.to_str().unwrap()), (308, "https://shop.example:8443/a?b=$host"));
    }
}
