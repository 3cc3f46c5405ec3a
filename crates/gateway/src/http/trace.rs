//! `traceparent` and `tracestate`: of which trace a request is (W3C Trace Context, level 1).

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::origin::RequestIds;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of `tracestate` that are passed on, all fields together; section 3.3.1.5 asks for at least 512.
const LONGEST_STATE: usize = 512;

/// The length of a `traceparent` of version 00 (section 3.2.2).
const LENGTH: usize = 55;

/// Makes the request part of a trace: of its client's, if what that says is valid, else of a new one that is sampled. The gateway is its new
/// parent.
pub(crate) fn carry_on(headers: &mut HeaderMap, ids: &RequestIds) {
    let mut present = headers.get_all(TRACEPARENT).iter();
    let known = present.next().filter(|_| present.next().is_none()).and_then(|value| read(value.as_bytes()));
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-01";
    let (trace, parent) = ids.trace();
    text[36..52].copy_from_slice(&parent);
    match known {
        Some((trace, is_sampled)) => {
            text[3..35].copy_from_slice(&trace);
            text[54] = if is_sampled { b'1' } else { b'0' };
        }
        None => text[3..35].copy_from_slice(&trace),
    }
    let state: usize = headers.get_all(TRACESTATE).iter().map(HeaderValue::len).sum();
    // Section 3.3: the state of a trace that cannot be read is discarded.
    if known.is_none() || state > LONGEST_STATE {
        headers.remove(TRACESTATE);
    }
    headers.insert(TRACEPARENT, HeaderValue::from_bytes(&text).expect("it is made of visible characters"));
}

/// The trace, and whether it is sampled. A later version is read by what it has in common with this one (section 3.2.4).
fn read(text: &[u8]) -> Option<([u8; 32], bool)> {
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
    let sampled = char::from(flags[1]).to_digit(16).is_some_and(|flags| flags & 1 == 1);
    Some((trace.try_into().ok()?, sampled))
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
        carry_on(&mut headers, &RequestIds::new(7));
        let parents: Vec<_> = headers.get_all(TRACEPARENT).iter().collect();
        assert_eq!(parents.len(), 1);
        assert!(read(parents[0].as_bytes()).is_some(), "{parents:?}");
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
    fn fuzz_traces() {
        let ids = RequestIds::new(7);
        weal_fuzz::target("traceparent", |bytes| {
            let mut headers = HeaderMap::new();
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                let Ok(value) = HeaderValue::from_bytes(line) else { continue };
                headers.append(if number % 2 == 1 { TRACESTATE } else { TRACEPARENT }, value);
            }
            carry_on(&mut headers, &ids);
            let parents: Vec<_> = headers.get_all(TRACEPARENT).iter().collect();
            assert!(parents.len() == 1 && read(parents[0].as_bytes()).is_some(), "{parents:?}");
            assert!(headers.get_all(TRACESTATE).iter().map(HeaderValue::len).sum::<usize>() <= LONGEST_STATE);
        });
    }
}
