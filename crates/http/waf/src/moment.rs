//! Dates for `TIME_*` and the audit log.

/// A date and time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    /// 0 is Sunday.
    pub weekday: u32,
    /// Seconds ahead of UTC.
    pub offset: i32,
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

impl Moment {
    /// The local time of microseconds since 1970.
    pub fn new(microseconds: u64, offset: i32) -> Moment {
        let seconds = (microseconds / 1_000_000) as i64 + i64::from(offset);
        let days = seconds.div_euclid(86_400);
        let rest = seconds.rem_euclid(86_400) as u32;
        // Howard Hinnant's algorithm "civil_from_days": eras of 400 years from 0000-03-01.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let weekday = (days + 4).rem_euclid(7) as u32;
        Moment { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60, weekday, offset }
    }

    fn name<'n>(names: &[&'n str], index: u32) -> &'n str {
        names.get(index as usize).copied().unwrap_or_default()
    }

    /// `29/Nov/2026:03:14:53 +0000`.
    pub fn log_form(&self) -> String {
        let (sign, ahead) = if self.offset < 0 { ('-', -self.offset) } else { ('+', self.offset) };
        let month = Moment::name(&MONTHS, self.month - 1);
        let Moment { year, day, hour, minute, second, .. } = self;
        let (zone_hours, zone_minutes) = (ahead / 3600, ahead / 60 % 60);
        format!("{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {sign}{zone_hours:02}{zone_minutes:02}")
    }

    /// `Sun Nov 29 03:14:53 2026`.
    pub fn text_form(&self) -> String {
        let (weekday, month) = (Moment::name(&DAYS, self.weekday), Moment::name(&MONTHS, self.month - 1));
        let Moment { year, day, hour, minute, second, .. } = self;
        format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        let moment = Moment::new(1_795_922_093_000_000, 0);
        assert_eq!(moment.log_form(), "29/Nov/2026:03:14:53 +0000");
        assert_eq!(moment.text_form(), "Sun Nov 29 03:14:53 2026");
        assert_eq!(Moment::new(951_782_400_000_000, -3600).log_form(), "28/Feb/2000:23:00:00 -0100");
    }
}
