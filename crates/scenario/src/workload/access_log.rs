//! Access logs (Common or Combined Log Format) as workloads.
//!
//! `127.0.0.1 - - [30/Jun/1998:22:00:01 +0000] "GET /index.html HTTP/1.0" 200 1043 ...`
//!
//! Only time, method and path count. Lines that cannot be read are counted and left out: real logs have some.

use std::io::BufRead;

/// One request of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Seconds since the first entry.
    pub at_s: u64,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
}

/// A log, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// The requests, in order of time.
    pub entries: Vec<Entry>,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// The first of them, for people: its number and its beginning.
    pub first_unreadable: Option<(u64, String)>,
}

/// The longest line that is looked at; longer ones are unreadable.
const LONGEST_LINE: usize = 16 << 10;

/// Reads a log. Fails only when the source does.
pub fn read(source: impl BufRead) -> std::io::Result<AccessLog> {
    let mut log = AccessLog::default();
    let mut timed = Vec::new();
    for (number, line) in source.split(b'\n').enumerate() {
        let line = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed = std::str::from_utf8(&line).ok().filter(|line| line.len() <= LONGEST_LINE).and_then(parse);
        match parsed {
            Some(entry) => timed.push(entry),
            None => {
                log.unreadable += 1;
                let beginning = String::from_utf8_lossy(&line).chars().take(60).collect();
                log.first_unreadable.get_or_insert((number as u64 + 1, beginning));
            }
        }
    }
    // Servers write a line when a request ends, so a log is nearly but not quite in order.
    timed.sort_by_key(|(seconds, _)| *seconds);
    let first = timed.first().map_or(0, |(seconds, _)| *seconds);
    log.entries = timed.into_iter().map(|(seconds, entry)| Entry { at_s: (seconds - first).cast_unsigned(), ..entry }).collect();
    Ok(log)
}

fn parse(line: &str) -> Option<(i64, Entry)> {
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let (request, _) = rest.split_once('"')?;
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let version = words.next()?;
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_method || !is_path || !version.starts_with("HTTP/") || words.next().is_some() {
        return None;
    }
    Some((seconds_of(time)?, Entry { at_s: 0, method: method.to_owned(), path: path.to_owned() }))
}

/// Seconds since 1970 of `30/Jun/1998:22:00:01 +0000`.
fn seconds_of(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (moment, zone) = text.split_once(' ').unwrap_or((text, "+0000"));
    let mut parts = moment.split([':', '/']);
    let day: i64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = 1 + i64::try_from(MONTHS.iter().position(|month| *month == name)?).ok()?;
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    let in_range = (1..=31).contains(&day) && (1970..3000).contains(&year);
    if !in_range || !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
        return None;
    }
    let (sign, digits) = zone.split_at_checked(1)?;
    let offset: i64 = digits.parse().ok()?;
    let offset = (offset / 100 * 3600 + offset % 100 * 60) * if sign == "-" { -1 } else { 1 };
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar (years begin in March, so that leap days come last).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_with_garbage_gives_its_good_lines_and_counts_the_rest() {
        let text = b"\
1.2.3.4 - - [30/Jun/1998:22:00:01 +0000] \"GET /b HTTP/1.0\" 200 1043\n\
1.2.3.4 - - [30/Jun/1998:23:59:59 +0200] \"POST /a?x=1 HTTP/1.1\" 200 1 \"-\" \"agent\"\n\
\xff\xfe not text\n\
\n\
1.2.3.4 - - [32/Jun/1998:22:00:01 +0000] \"GET / HTTP/1.0\" 200 1\n\
1.2.3.4 - - [30/Jun/1998:22:00:01 +0000] \"GET\" 400 0\n\
1.2.3.4 - - [30/Jun/1998:22:00:01 +0000] \"GET http://evil/ HTTP/1.1\" 400 0\n\
1.2.3.4 - - [29/Feb/2000:00:00:00 +0000] \"GET /c HTTP/1.1\" 200 0\n";
        let log = read(&text[..]).unwrap();
        let paths: Vec<(u64, &str)> = log.entries.iter().map(|entry| (entry.at_s, entry.path.as_str())).collect();
        assert_eq!(paths, [(0, "/a?x=1"), (2, "/b"), (52_538_401, "/c")]);
        assert_eq!(log.unreadable, 4);
        assert_eq!(log.first_unreadable.unwrap().0, 3);
    }

    #[test]
    fn dates_are_counted_as_the_calendar_does() {
        assert_eq!(seconds_of("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(seconds_of("30/Jun/1998:22:00:01 +0000"), Some(899_244_001));
        assert_eq!(seconds_of("29/Feb/2024:12:00:00 -0130"), Some(1_709_213_400));
    }

    #[test]
    fn fuzz_access_logs() {
        weal_fuzz::target("access-log", |bytes| {
            let log = read(bytes).unwrap();
            assert!(log.entries.is_sorted_by_key(|entry| entry.at_s), "in the order in which they came");
        });
    }
}
