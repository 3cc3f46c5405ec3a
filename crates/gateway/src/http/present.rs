//! Which of the fields that matter on the way a head has. One look at each name of a head costs less than to look up each name that might be
//! there, as hardly any head has one of them.

use std::ops::BitOr;

use http::header::HeaderMap;

/// Kinds of fields, as many as are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Present(u8);

impl Present {
    pub const CONNECTION: Self = Self(1);
    pub const TRANSFER_ENCODING: Self = Self(1 << 1);
    pub const UPGRADE: Self = Self(1 << 2);
    pub const EXPECT: Self = Self(1 << 3);
    /// Any other that concerns one connection only.
    pub const ONE_HOP: Self = Self(1 << 4);
    /// `Content-Length`.
    pub const LENGTH: Self = Self(1 << 5);
    /// Any in which the gateway says something of a request.
    pub const REMARK: Self = Self(1 << 6);
    /// What tells an instance the class of a request.
    pub const MARK: Self = Self(1 << 7);

    pub fn of(headers: &HeaderMap) -> Self {
        headers.keys().fold(Self::default(), |present, name| present | Self::kind(name.as_str()))
    }

    /// True when a field of one of these kinds is there.
    pub fn has(self, kinds: Self) -> bool {
        self.0 & kinds.0 != 0
    }

    /// `name` is in small letters.
    fn kind(name: &str) -> Self {
        match name {
            "connection" => Self::CONNECTION,
            "transfer-encoding" => Self::TRANSFER_ENCODING,
            "upgrade" => Self::UPGRADE,
            "expect" => Self::EXPECT,
            "te" | "keep-alive" | "proxy-connection" | "proxy-authorization" | "http2-settings" => Self::ONE_HOP,
            "content-length" => Self::LENGTH,
            "via" | "forwarded" | "x-request-id" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" => Self::REMARK,
            "x-weal-class" => Self::MARK,
            _ => Self::default(),
        }
    }
}

impl BitOr for Present {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use http::header::{self, HeaderName, HeaderValue};

    use super::*;
    use crate::routing::marks;

    #[test]
    fn each_field_that_is_asked_about_is_seen_and_no_other() {
        let present =
            |names: &[HeaderName]| Present::of(&names.iter().map(|name| (name.clone(), HeaderValue::from_static("x"))).collect());
        assert_eq!(present(&[header::HOST, header::ACCEPT, header::COOKIE, header::CONTENT_TYPE]), Present::default());
        assert!(present(&[marks::FIELD]).has(Present::MARK));
        let both = present(&[header::HOST, header::EXPECT, header::VIA]);
        assert!(both.has(Present::EXPECT) && both.has(Present::REMARK) && !both.has(Present::UPGRADE | Present::CONNECTION));
    }
}
