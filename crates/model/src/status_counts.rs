//! Responses counted by the class of their status code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many responses had a status code of each class (RFC 9110, section 15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusCounts {
    /// 101: the connection is no longer HTTP.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// The request was carried out.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// The client is sent elsewhere, or has what it asks for.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// The request was at fault.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// The application was at fault. Codes beyond 599, which no standard knows, count here too.
    #[serde(rename = "5xx")]
    pub server_error: u64,
}

impl StatusCounts {
    /// Counts a response with this code.
    pub fn count(&mut self, status: u16) {
        let class = match status / 100 {
            0 | 1 => &mut self.informational,
            2 => &mut self.successful,
            3 => &mut self.redirection,
            4 => &mut self.client_error,
            _ => &mut self.server_error,
        };
        *class += 1;
    }

    /// Each class as people write it, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("1xx", self.informational),
            ("2xx", self.successful),
            ("3xx", self.redirection),
            ("4xx", self.client_error),
            ("5xx", self.server_error),
        ]
        .into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_counts_in_its_class() {
        let mut counts = StatusCounts::default();
        [101, 200, 204, 304, 404, 429, 451, 500, 599, 777].into_iter().for_each(|status| counts.count(status));
        assert_eq!(counts.iter().map(|(_, count)| count).collect::<Vec<_>>(), [1, 2, 1, 3, 3]);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"1xx":1,"2xx":2,"3xx":1,"4xx":3,"5xx":3}"#);
    }
}
