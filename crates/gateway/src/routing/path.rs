//! One spelling for all paths that mean the same, for the choice of a route.
//!
//! A route for `/admin/*` that `//admin`, `/./admin`, `/%61dmin` and `/x/../admin` pass by is no route: the instance may read them as
//! `/admin`. Only the choice is made by this; the instance gets the path as it came.

use std::borrow::Cow;

/// The normal form of a path (RFC 3986 section 6.2.2): escapes of characters that need none are decoded, the others' digits are in upper case,
/// and the segments `.` and `..` are gone. Beyond that, several slashes are read as one, before anything else looks at the segments: most
/// servers do so. An escaped slash, `%2F`, stays what it is: a part of a segment.
pub(crate) fn normalize(path: &str) -> Cow<'_, str> {
    let mut previous = 0;
    let mut is_normal = true;
    for byte in path.bytes() {
        is_normal &= byte != b'%' && !(previous == b'/' && matches!(byte, b'/' | b'.'));
        previous = byte;
    }
    if is_normal { Cow::Borrowed(path) } else { Cow::Owned(without_dots(&decode(path))) }
}

/// The path without the parameters of its segments, where it has any: `/a;v=1/b` is `/a/b` (RFC 3986 section 3.3). Servlet containers cut them
/// off before they look at the segments, so `/x/..;/admin` is `/admin` to them.
pub(crate) fn without_parameters(path: &str) -> Option<String> {
    memchr::memchr(b';', path.as_bytes())?;
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    Some(segments.collect::<Vec<_>>().join("/"))
}

/// The normal form of what follows `prefix`, a path of whole segments, in the normal form of `path`. `None` when `path` is not below it.
///
/// A prefix stands in a path in every spelling that the choice of a route takes for it: also with parameters, as in `/api;v=1/users` below `/api`.
/// Those of its segments go with it, and what follows keeps its own. Where the rest would mean another path with its parameters than the route
/// was chosen by, as that of `/api/..;/api/users` would, it has none.
pub(crate) fn strip<'a>(path: &'a str, prefix: &str) -> Option<Cow<'a, str>> {
    let normal = normalize(path);
    let Some(plain) = without_parameters(path).filter(|_| !prefix.contains(';')) else {
        return match normal {
            Cow::Borrowed(normal) => below(normal, prefix).map(Cow::Borrowed),
            Cow::Owned(normal) => below(&normal, prefix).map(|rest| rest.to_owned().into()),
        };
    };
    let plain = normalize(&plain);
    let meant = below(&plain, prefix)?;
    let kept = after_segments(&normal, prefix.matches('/').count());
    let means_the_same = kept == meant || without_parameters(kept).is_some_and(|plain| normalize(&plain) == meant);
    let rest = if means_the_same { kept } else { meant };
    Some(rest.to_owned().into())
}

/// What follows `prefix` in `path`: nothing, or whole segments.
pub(crate) fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path without its first segments; nothing where it has no more.
fn after_segments(path: &str, count: usize) -> &str {
    path.match_indices('/').nth(count).map_or("", |(at, _)| &path[at..])
}

/// RFC 3986 sections 6.2.2.1 and 6.2.2.2.
fn decode(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        rest = after;
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            decoded.push('%');
            continue;
        };
        if (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) && !ends_in_half_escape(&decoded) {
            decoded.push(char::from(byte));
        } else {
            decoded.push_str(&format!("%{byte:02X}"));
        }
        rest = &after[2..];
    }
    decoded.push_str(rest);
    decoded
}

/// True when what follows would be taken for the rest of an escape that is none: `%6%61` must not become `%6a`.
fn ends_in_half_escape(decoded: &str) -> bool {
    let bytes = decoded.as_bytes();
    bytes.ends_with(b"%") || matches!(bytes, [.., b'%', digit] if digit.is_ascii_hexdigit())
}

/// RFC 3986 section 5.2.4, with several slashes as one.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let is_folder = matches!(path.rsplit('/').next(), Some("" | "." | ".."));
    let mut normal = String::with_capacity(path.len());
    for segment in kept {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_folder || normal.is_empty() {
        normal.push('/');
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_mean_the_same_have_one_spelling() {
        for (path, normal) in [
            ("/admin", "/admin"),
            ("//admin", "/admin"),
            ("/./admin", "/admin"),
            ("/%61dmin", "/admin"),
            ("/x/../admin", "/admin"),
            ("/x/%2e%2E/admin", "/admin"),
            ("/../../admin", "/admin"),
            ("/x//../admin", "/admin"),
            ("/admin/.", "/admin/"),
            ("/admin/x/..", "/admin/"),
            ("/admin//", "/admin/"),
            ("/%7euser/a%2fb%c3%a9", "/~user/a%2Fb%C3%A9"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a.b/...", "/a.b/..."),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz%2", "/%zz%2"),
            ("/%+1", "/%+1"),
            ("/%6%61", "/%6%61"),
            ("/%%36%31", "/%%361"),
            ("/..", "/"),
            ("*", "*"),
        ] {
            assert_eq!(normalize(path), normal, "{path}");
            assert_eq!(normalize(&normalize(path)), normal, "{path}: once is enough");
        }
    }

    #[test]
    fn what_follows_a_prefix_is_the_same_path_with_parameters_and_without() {
        for (path, rest) in [
            ("/api", ""),
            ("/api/x", "/x"),
            ("/api;v=1", ""),
            ("/api;v=1/x", "/x"),
            ("/api;v=1/x;y=2/z", "/x;y=2/z"),
            ("/api/x;y=2", "/x;y=2"),
            ("//api;v=1//x", "/x"),
            ("/%61pi;v=1/./x", "/x"),
            ("/api;/", "/"),
            ("/x/..;/api/y;z=1", "/y"),
            ("/api/..;/api/y;z=1", "/y"),
            ("/api/x/..;/y", "/x/..;/y"),
        ] {
            assert_eq!(strip(path, "/api").as_deref(), Some(rest), "{path}");
        }
        assert_eq!((strip("/apis", "/api"), strip("/apis;/x", "/api")), (None, None));
        assert_eq!(strip("/a;v=1/x;y=2", "/a;v=1").as_deref(), Some("/x;y=2"), "a prefix that has parameters itself");
        assert_eq!(strip("/a;v=2/x", "/a;v=1"), None);
    }

    #[test]
    fn fuzz_paths() {
        weal_fuzz::target("path", |bytes| {
            let path = String::from_utf8_lossy(bytes);
            let normal = normalize(&path).into_owned();
            assert_eq!(normalize(&normal), normal, "once is enough");
            let plain = |path: &str| {
                without_parameters(path).map_or_else(|| normalize(path).into_owned(), |path| normalize(&path).into_owned())
            };
            let (stripped, chosen) = (strip(&path, "/a"), plain(&path));
            // At the end of a path that is empty, its slash is missing.
            let as_path = |rest: &str| if rest.is_empty() { "/".to_owned() } else { plain(rest) };
            assert_eq!(
                stripped.as_deref().map(as_path),
                below(&chosen, "/a").map(as_path),
                "what was chosen is what is passed on"
            );
            assert!(!path.starts_with('/') || normal.split('/').all(|segment| segment != ".."), "nothing leads upwards");
        });
    }
}
