//! Which instance a client's session belongs to, as its cookie says it.
//!
//! The cookie's value is a token: HMAC-SHA-256 of the application and the instance under a key of this gateway's own, cut to 128 bits. It
//! names no instance, address or node to whoever has no key, nobody can make one up, and nothing has to be kept for each session. A value
//! that is no token of an instance that takes requests means nothing: the request goes where any other would, and its client gets a new
//! cookie. So a session goes on elsewhere when its instance has died; what it kept in memory there is gone.

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use ring::hmac;
use weal_model::{AppName, InstanceId};

use super::file::{hex, random, replace};

/// Below the state directory; only the gateway may read it. It outlives a gateway, so that cookies do.
const FILE: &str = "gateway/affinity.key";
const KEY_BYTES: usize = 32;
/// Of the HMAC's 32: nobody guesses 128 bits.
const TOKEN_BYTES: usize = 16;

/// Makes the tokens of instances.
#[derive(Debug, Clone)]
pub(crate) struct Tokens(hmac::Key);

impl Tokens {
    /// With the key of the gateway before, or a new one.
    ///
    /// # Errors
    /// When there is none, and no random numbers for one either.
    pub fn load(state_dir: &Path) -> io::Result<Self> {
        let file = state_dir.join(FILE);
        let kept = std::fs::read(&file).ok().and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        if let Some(key) = kept {
            return Ok(Self::of(&key));
        }
        let key = random()?;
        if let Err(error) = replace(&file, &key) {
            tracing::warn!(file = %file.display(), %error, "the key of session cookies is not stored, so a restart breaks session affinity");
        }
        Ok(Self::of(&key))
    }

    fn of(key: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// What stands for an instance: 32 hexadecimal digits.
    pub fn token(&self, app: &AppName, instance: &InstanceId) -> Arc<str> {
        let mut context = hmac::Context::with_key(&self.0);
        // No name holds a zero byte, so no two pairs are the same text.
        [app.as_str().as_bytes(), &[0], instance.as_str().as_bytes()].iter().for_each(|part| context.update(part));
        let tag = context.sign();
        hex(&tag.as_ref()[..TOKEN_BYTES]).into()
    }
}

/// The value of a request's cookie `name`; `None` when it brings none, or one that is no text.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
    let pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(known, value)| *known == name && !value.is_empty()).map(|(_, value)| value).next()
}

/// The field that gives a client a cookie for its browser's session, out of reach of scripts; over TLS, only to be sent over TLS.
pub(crate) fn set_cookie(name: &str, token: &str, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    HeaderValue::try_from(format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{secure}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_instance_to_nobody_else_and_outlives_the_gateway() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load(folder.path()).unwrap();
        let token = tokens.token(&"shop".into(), &"shop-1".into());
        assert!(token.len() == 32 && token.chars().all(|c| c.is_ascii_hexdigit()), "{token}");
        assert_ne!(token, tokens.token(&"shop".into(), &"shop-2".into()));
        assert_ne!(token, tokens.token(&"shop2".into(), &"shop-1".into()));
        let again = Tokens::load(folder.path()).unwrap();
        assert_eq!(token, again.token(&"shop".into(), &"shop-1".into()));
        let other = Tokens::load(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(token, other.token(&"shop".into(), &"shop-1".into()));
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("xat=1; at = no; at=; theme=dark"));
        headers.append(header::COOKIE, HeaderValue::from_static("a=b;at=abc"));
        assert_eq!((cookie(&headers, "at"), cookie(&headers, "theme"), cookie(&headers, "b")), (Some("abc"), Some("dark"), None));
    }
}
