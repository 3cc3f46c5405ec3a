//! Dates of log lines, in UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use weal_model::Time;

/// `2026-11-26T01:20:04.123Z`.
pub(super) fn rfc3339(time: Time) -> String {
    let date = date(time);
    let (year, month, day, milliseconds) = (date.year(), date.month(), date.day(), date.subsec_nanosecond() / 1_000_000);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{milliseconds:03}Z", date.hour(), date.minute(), date.second())
}

/// `26/Nov/2026:01:20:04 +0000`, as Apache writes it.
pub(super) fn common(time: Time) -> String {
    date(time).strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

fn date(time: Time) -> DateTime {
    let moment = Timestamp::from_nanosecond(i128::from(time.0)).expect("nanoseconds in 64 bits end in the year 2554");
    Offset::UTC.to_datetime(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Time(seconds * 1_000_000_000)), date);
        }
        assert_eq!(common(Time(1_795_656_004_123_456_789)), "26/Nov/2026:01:20:04 +0000");
        assert_eq!(rfc3339(Time(1_795_656_004_123_456_789)), "2026-11-26T01:20:04.123Z");
    }
}
