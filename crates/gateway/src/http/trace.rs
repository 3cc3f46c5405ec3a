//! `traceparent` and `tracestate`: of which trace a request is (W3C Trace Context, level 1).

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::origin::{self, RequestIds};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of `tracestate` that are passed on, all fields together; section 3.3.1.5 asks for at least 512.
const LONGEST_STATE: usize = 512;

/// The length of a `traceparent` of version 00 (section 3.2.2).
const LENGTH: usize = 55;

/// Of which trace a request is, and which span of it the gateway is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TraceContext {
    trace: [u8; 32],
    span: [u8; 16],
    /// The span of its client; `None` where the trace begins here.
    parent: Option<[u8; 16]>,
    /// Whether the spans of this trace are kept.
    pub is_sampled: bool,
}

impl TraceContext {
    /// That of its client, if what that says is valid. Otherwise a new one, of which the share `ratio` is sampled.
    pub fn of(headers: &HeaderMap, ids: &RequestIds, ratio: f64) -> Self {
        let mut present = headers.get_all(TRACEPARENT).iter();
        let known = present.next().filter(|_| present.next().is_none()).and_then(|value| read(value.as_bytes()));
        let (trace, span) = ids.trace();
        match known {
            Some(Known { trace, parent, is_sampled }) => Self { trace, span, parent: Some(parent), is_sampled },
            None => Self { trace, span, parent: None, is_sampled: is_sampled(&trace, ratio) },
        }
    }

    /// Makes the gateway the parent of what an instance does for the request.
    pub fn pass_on(&self, headers: &mut HeaderMap) {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&self.trace);
        text[36..52].copy_from_slice(&self.span);
        text[54] = if self.is_sampled { b'1' } else { b'0' };
        let state: usize = headers.get_all(TRACESTATE).iter().map(HeaderValue::len).sum();
        // Section 3.3: the state of a trace that cannot be read is discarded.
        if self.parent.is_none() || state > LONGEST_STATE {
            headers.remove(TRACESTATE);
        }
        let mut parent = HeaderValue::from_bytes(&text).expect("it is made of visible characters");
        origin::mark_unique(&mut parent);
        headers.insert(TRACEPARENT, parent);
    }

    /// The trace, the gateway's span and its parent, in hexadecimal digits.
    pub fn digits(&self) -> (String, String, Option<String>) {
        let text = |digits: &[u8]| String::from_utf8_lossy(digits).into_owned();
        (text(&self.trace), text(&self.span), self.parent.as_ref().map(|parent| text(parent)))
    }
}

/// Whether a trace that begins here is sampled. Its digits decide, as OpenTelemetry's samplers decide by the last 56 bits: who samples the same
/// trace by the same ratio comes to the same answer.
fn is_sampled(trace: &[u8; 32], ratio: f64) -> bool {
    let last = trace[18..].iter().fold(0_u64, |number, digit| (number << 4) | u64::from(value_of(*digit)));
    last as f64 >= (1.0 - ratio) * (1_u64 << 56) as f64
}

fn value_of(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

/// What a client's `traceparent` says.
struct Known {
    trace: [u8; 32],
    parent: [u8; 16],
    is_sampled: bool,
}

/// A later version is read by what it has in common with this one (section 3.2.4).
fn read(text: &[u8]) -> Option<Known> {
    let is_hex = |text: &[u8]| text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |text: &[u8]| text.iter().all(|byte| *byte == b'0');
    let known = text.get(..LENGTH)?;
    let (version, trace, parent, flags) = (&known[..2], &known[3..35], &known[36..52], &known[53..]);
    let is_long = text.len() > LENGTH && (version == b"00" || text[LENGTH] != b'-');
    let has_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
    let is_valid = [version, trace, parent, flags].into_iter().all(is_hex) && has_dashes && !is_long;
    if !is_valid || version == b"ff" || is_zero(trace) || is_zero(parent) {
        return None;
    }
    let is_sampled = value_of(flags[1]) & 1 == 1;
    Some(Known { trace: trace.try_into().ok()?, parent: parent.try_into().ok()?, is_sampled })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn carried(parents: &[&str], state: &str) -> (String, bool) {
        let mut headers = HeaderMap::new();
        for parent in parents {
            headers.append(TRACEPARENT, HeaderValue::from_str(parent).unwrap());
        }
        headers.insert(TRACESTATE, HeaderValue::from_str(state).unwrap());
        TraceContext::of(&headers, &RequestIds::new(7), 1.0).pass_on(&mut headers);
        let parents: Vec<_> = headers.get_all(TRACEPARENT).iter().collect();
        assert_eq!(parents.len(), 1);
        assert!(read(parents[0].as_bytes()).is_some() && parents[0].is_sensitive(), "{parents:?}");
        (parents[0].to_str().unwrap().to_owned(), headers.contains_key(TRACESTATE))
    }

    #[test]
    fn a_valid_trace_goes_on_with_the_gateway_as_its_parent() {
        for (flags, sampled) in [("01", "01"), ("00", "00"), ("03", "01")] {
            let (parent, has_state) = carried(&[&format!("00-{TRACE}-00f067aa0ba902b7-{flags}")], "a=1");
            assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with(sampled), "{parent}");
            assert!(!parent.contains("00f067aa0ba902b7") && has_state);
        }
        let (parent, _) = carried(&[&format!("cc-{TRACE}-00f067aa0ba902b7-01-what-comes")], "");
        assert!(parent.contains(TRACE), "{parent}");
    }

    #[test]
    fn what_is_not_valid_begins_a_new_trace_without_a_state() {
        let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let bad = [
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            valid.to_uppercase(),
            format!("{valid}-more"),
            format!("cc{}x", &valid[2..]),
            valid[..54].to_owned(),
            String::new(),
        ];
        for bad in &bad {
            let (parent, has_state) = carried(&[bad], "a=1");
            assert!(!parent.contains(TRACE) && !has_state, "{bad}: {parent}");
        }
        assert!(!carried(&[&valid, &valid], "a=1").0.contains(TRACE), "two parents are none");
        assert!(!carried(&[&valid], &"x".repeat(LONGEST_STATE + 1)).1, "a state that is too long goes");
    }

    #[test]
    fn the_span_of_the_gateway_is_the_parent_of_the_next_and_the_child_of_its_clients() {
        let mut headers = HeaderMap::new();
        let sent = format!("00-{TRACE}-00f067aa0ba902b7-00");
        headers.insert(TRACEPARENT, HeaderValue::from_str(&sent).unwrap());
        let context = TraceContext::of(&headers, &RequestIds::new(7), 1.0);
        assert!(!context.is_sampled, "its client has decided, whatever the ratio");
        let (trace, span, parent) = context.digits();
        assert_eq!((trace.as_str(), parent.as_deref()), (TRACE, Some("00f067aa0ba902b7")));
        context.pass_on(&mut headers);
        assert_eq!(headers[TRACEPARENT], format!("00-{TRACE}-{span}-00"));
        let begun = TraceContext::of(&HeaderMap::new(), &RequestIds::new(7), 1.0);
        assert!(begun.is_sampled && begun.digits().2.is_none());
    }

    #[test]
    fn of_new_traces_the_ratio_is_sampled_and_each_trace_by_its_digits_alone() {
        let ids = RequestIds::new(7);
        let traces: Vec<[u8; 32]> = (0..10_000).map(|_| ids.trace().0).collect();
        for (ratio, sampled) in [(0.0, 0..=0), (0.25, 2300..=2700), (0.5, 4800..=5200), (1.0, 10_000..=10_000)] {
            let count = traces.iter().filter(|trace| is_sampled(trace, ratio)).count();
            assert!(sampled.contains(&count), "{ratio}: {count}");
        }
        assert!(traces.iter().all(|trace| !is_sampled(trace, 0.25) || is_sampled(trace, 0.5)), "more of them, never others");
    }

    #[test]
    fn fuzz_traces() {
        let ids = RequestIds::new(7);
        weal_fuzz::target("traceparent", |bytes| {
            let mut headers = HeaderMap::new();
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                let Ok(value) = HeaderValue::from_bytes(line) else { continue };
                headers.append(if number % 2 == 1 { TRACESTATE } else { TRACEPARENT }, value);
            }
            TraceContext::of(&headers, &ids, 0.5).pass_on(&mut headers);
            let parents: Vec<_> = headers.get_all(TRACEPARENT).iter().collect();
            assert!(parents.len() == 1 && read(parents[0].as_bytes()).is_some(), "{parents:?}");
            assert!(headers.get_all(TRACESTATE).iter().map(HeaderValue::len).sum::<usize>() <= LONGEST_STATE);
        });
    }
}
