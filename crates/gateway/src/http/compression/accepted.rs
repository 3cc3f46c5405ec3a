//! `Accept-Encoding` (RFC 9110 section 12.5.3).

use super::coding::Coding;

/// The coding that a client likes best of those that there are; `None` when it likes the plain bytes as much, or says nothing.
pub(super) fn accepted<'v>(values: impl Iterator<Item = &'v str>) -> Option<Coding> {
    let (mut named, mut any, mut plain) = ([None; Coding::ALL.len()], None, None);
    for member in values.flat_map(|value| value.split(',')) {
        let mut parts = member.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = weight(parts);
        match name.as_str() {
            "*" => any = Some(weight),
            "identity" => plain = Some(weight),
            name => {
                let name = if name == "x-gzip" { "gzip" } else { name };
                let place = Coding::ALL.iter().position(|coding| coding.name() == name);
                if let Some(place) = place {
                    named[place] = Some(weight);
                }
            }
        }
    }
    let weighed = Coding::ALL.into_iter().zip(named).map(|(coding, weight)| (coding, weight.or(any).unwrap_or(0)));
    // The first of equals.
    let best = weighed.rev().max_by_key(|(_, weight)| *weight);
    best.filter(|(_, weight)| *weight > 0 && plain.is_none_or(|plain| plain <= *weight)).map(|(coding, _)| coding)
}

/// In thousandths. What cannot be read is as good as refused.
fn weight<'p>(parameters: impl Iterator<Item = &'p str>) -> u16 {
    for parameter in parameters {
        let Some((name, value)) = parameter.split_once('=') else { return 0 };
        if !name.trim().eq_ignore_ascii_case("q") {
            continue;
        }
        let (whole, rest) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
        let is_weight = matches!(whole, "0" | "1") && rest.len() <= 3 && rest.bytes().all(|byte| byte.is_ascii_digit());
        let thousandths = format!("{whole}{rest:0<3}").parse().unwrap_or(0);
        return if is_weight && thousandths <= 1000 { thousandths } else { 0 };
    }
    1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_liked_coding_is_taken() {
        use Coding::*;
        for (value, coding) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip, deflate, br", Some(Brotli)),
            ("gzip;q=1.0, br;q=0.9", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP; Q=0.001", Some(Gzip)),
            ("*", Some(Zstd)),
            ("*;q=0.5, zstd;q=0", Some(Brotli)),
            ("gzip;q=0", None),
            ("gzip;q=0.5, identity", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("identity;q=0", None),
            ("gzip;q=2", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=", None),
            ("gzip;q", None),
            ("deflate, compress", None),
            ("", None),
        ] {
            assert_eq!(accepted([value].into_iter()), coding, "{value}");
        }
        assert_eq!(accepted(["gzip", "br;q=0.2"].into_iter()), Some(Gzip), "two fields");
        assert_eq!(accepted([].into_iter()), None, "none at all");
    }

    #[test]
    fn fuzz_accepted_codings() {
        weal_fuzz::target("accept-encoding", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let _ = accepted(text.split('|'));
        });
    }
}
