//! Dates of log lines, in UTC.

use weal_model::Time;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// A moment by the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub year: u64,
    /// From 1.
    pub month: u64,
    /// From 1.
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
    pub millisecond: u64,
}

impl Date {
    /// Counts years from March: the leap day is then the last one, and a month's first day is a straight line, 153 days in five months.
    pub fn of(time: Time) -> Self {
        let milliseconds = time.0 / 1_000_000;
        let seconds = milliseconds / 1000;
        // From 1 March 0000, in eras of 400 years, which are equally long.
        let days = seconds / DAY_S + 719_468;
        let (era, in_era) = (days / 146_097, days % 146_097);
        let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * in_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: era * 400 + year + u64::from(month <= 2),
            month,
            day: in_year - (153 * from_march + 2) / 5 + 1,
            hour: seconds % DAY_S / 3600,
            minute: seconds % 3600 / 60,
            second: seconds % 60,
            millisecond: milliseconds % 1000,
        }
    }

    /// `2026-11-26T01:20:04.123Z`.
    pub fn rfc3339(self) -> String {
        let Self { year, month, day, hour, minute, second, millisecond } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }

    /// `26/Nov/2026:01:20:04 +0000`, as Apache writes it.
    pub fn common(self) -> String {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let Self { year, month, day, hour, minute, second, .. } = self;
        let month = MONTHS[month as usize - 1];
        format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
    }
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
            assert_eq!(Date::of(Time(seconds * 1_000_000_000)).rfc3339(), date);
        }
        assert_eq!(Date::of(Time(1_795_656_004_123_456_789)).common(), "26/Nov/2026:01:20:04 +0000");
        assert_eq!(Date::of(Time(1_795_656_004_123_456_789)).rfc3339(), "2026-11-26T01:20:04.123Z");
    }
}
