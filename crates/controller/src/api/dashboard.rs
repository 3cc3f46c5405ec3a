//! The dashboard: one self-contained page, so that no file is needed beside the binary.

use std::sync::LazyLock;

use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header;
use ring::digest::{SHA256, digest};

use super::state::ApiState;

const PAGE: &str = include_str!("../../../../dashboard/dist/index.html");
/// The page may run what is in it and talk to where it came from; nothing else, whatever gets into it.
static POLICY: LazyLock<String> = LazyLock::new(|| policy(PAGE));

pub(super) async fn dashboard(_: ApiState) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(PAGE)).into_response()
}

/// Scripts and styles are known by their hashes (Content Security Policy Level 3, section 6.7.2). So a script that found its way into a name
/// or a message does not run, nor does one in an attribute. Styles that a script sets, as charts do, need no rule.
fn policy(page: &str) -> String {
    let [scripts, styles] = ["script", "style"].map(|element| hashes(page, element));
    format!(
        "default-src 'none'; script-src{scripts}; style-src{styles}; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
}

/// What is in each `element` of the page, as sources of a policy. An element ends where its end tag first stands, as browsers read it.
fn hashes(page: &str, element: &str) -> String {
    let (begin, end) = (format!("<{element}"), format!("</{element}"));
    let (mut rest, mut hashes) = (page, String::new());
    while let Some((_, after)) = rest.split_once(&begin) {
        let Some((_, content)) = after.split_once('>') else { break };
        let (content, after) = content.split_once(&end).unwrap_or((content, ""));
        hashes.push_str(&format!(" 'sha256-{}'", STANDARD.encode(digest(&SHA256, content.as_bytes()))));
        rest = after;
    }
    if hashes.is_empty() { " 'none'".to_owned() } else { hashes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_and_style_of_a_page_is_known_by_its_hash() {
        // Of `alert(1)` and of nothing, by `openssl dgst -sha256 -binary | base64`.
        let (one, nothing) = ("bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        let policy = policy("<title>a</title><script type=module>alert(1)</script><p onclick='x()'><script></script>");
        assert!(policy.contains(&format!("script-src 'sha256-{one}' 'sha256-{nothing}'; style-src 'none';")), "{policy}");
    }

    #[test]
    fn the_page_has_one_script_and_one_style_and_nothing_in_attributes() {
        for element in ["script", "style"] {
            assert_eq!(hashes(PAGE, element).split_whitespace().count(), 1, "{element}");
        }
        assert!(!POLICY.contains("unsafe"), "{}", *POLICY);
    }
}
