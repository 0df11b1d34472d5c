//! Dates, times and durations of XML Schema, as far as EXSLT needs them.

/// Parts of a date or time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DateParts {
    pub kind: StampKind,
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: f64,
    /// Minutes east of UTC; `None`: local.
    pub zone: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampKind {
    DateTime,
    Date,
    YearMonth,
    Year,
    Time,
    MonthDay,
    Month,
    Day,
}

/// Months, days and seconds of a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Duration {
    pub months: i64,
    pub days: i64,
    pub seconds: f64,
}

/// Years that calculations take.
const YEAR_MAX: i64 = 100_000_000;

pub(super) fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 of the proleptic Gregorian calendar.
pub(super) fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a day number.
pub(super) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

struct Reader<'t>(&'t str);

impl Reader<'_> {
    fn eat(&mut self, token: char) -> Option<()> {
        self.0 = self.0.strip_prefix(token)?;
        Some(())
    }
    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let text = self.0.get(..count).filter(|_| count >= least)?;
        self.0 = self.0.get(count..)?;
        text.parse().ok()
    }
    fn two(&mut self, low: i64, high: i64) -> Option<i64> {
        self.digits(2, 2).filter(|n| (low..=high).contains(n))
    }
    fn seconds(&mut self) -> Option<f64> {
        let whole = self.two(0, 60)? as f64;
        if self.eat('.').is_none() {
            return Some(whole);
        }
        let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let text = self.0.get(..count).filter(|_| count > 0)?;
        self.0 = self.0.get(count..)?;
        Some(whole + format!("0.{text}").parse::<f64>().ok()?)
    }
    fn time(&mut self, stamp: &mut DateParts) -> Option<()> {
        stamp.hour = self.two(0, 24)?;
        self.eat(':')?;
        stamp.minute = self.two(0, 59)?;
        self.eat(':')?;
        stamp.second = self.seconds()?;
        (stamp.hour < 24 || (stamp.minute == 0 && stamp.second == 0.0)).then_some(())
    }
    fn zone(&mut self, stamp: &mut DateParts) -> Option<()> {
        if self.0.is_empty() {
            return Some(());
        }
        if self.eat('Z').is_some() {
            stamp.zone = Some(0);
        } else {
            let sign = if self.eat('+').is_some() { 1 } else { self.eat('-').map(|()| -1)? };
            let hours = self.two(0, 14)?;
            self.eat(':')?;
            stamp.zone = Some(sign * (hours * 60 + self.two(0, 59)?));
        }
        self.0.is_empty().then_some(())
    }
}

/// Parses a date or time.
pub(super) fn parse(text: &str) -> Option<DateParts> {
    let text = text.trim();
    let blank =
        DateParts { kind: StampKind::DateTime, year: 0, month: 1, day: 1, hour: 0, minute: 0, second: 0.0, zone: None };
    let mut stamp = blank;
    if let Some(rest) = text.strip_prefix("--") {
        let mut reader = Reader(rest);
        if reader.eat('-').is_some() {
            stamp.kind = StampKind::Day;
            stamp.day = reader.two(1, 31)?;
        } else {
            stamp.kind = StampKind::Month;
            stamp.month = reader.two(1, 12)?;
            if reader.0 == "--" {
                reader.0 = "";
            }
            if reader.0.starts_with('-')
                && reader.0.as_bytes().get(1).copied().is_some_and(|b| b.is_ascii_digit())
                && reader.0.as_bytes().get(3).copied() != Some(b':')
            {
                reader.eat('-')?;
                stamp.kind = StampKind::MonthDay;
                stamp.day = reader.two(1, 31)?;
            }
        }
        reader.zone(&mut stamp)?;
        return Some(stamp);
    }
    if text.as_bytes().get(2).copied() == Some(b':') {
        let mut reader = Reader(text);
        stamp.kind = StampKind::Time;
        reader.time(&mut stamp)?;
        reader.zone(&mut stamp)?;
        return Some(stamp);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut reader = Reader(rest);
    let year = reader.digits(4, 9)?;
    stamp.year = sign * year;
    if year == 0 || year > YEAR_MAX {
        return None;
    }
    stamp.kind = StampKind::Year;
    if reader.0.starts_with('-') && reader.0.as_bytes().get(3).copied() != Some(b':') {
        reader.eat('-')?;
        stamp.kind = StampKind::YearMonth;
        stamp.month = reader.two(1, 12)?;
        if reader.0.starts_with('-') && reader.0.as_bytes().get(3).copied() != Some(b':') {
            reader.eat('-')?;
            stamp.kind = StampKind::Date;
            stamp.day = reader.two(1, days_in_month(stamp.year, stamp.month))?;
            if reader.eat('T').is_some() {
                stamp.kind = StampKind::DateTime;
                reader.time(&mut stamp)?;
            }
        }
    }
    reader.zone(&mut stamp)?;
    Some(stamp)
}

impl DateParts {
    pub fn has_date(&self) -> bool {
        matches!(self.kind, StampKind::DateTime | StampKind::Date)
    }
    /// Seconds since the epoch, UTC.
    pub fn seconds(&self) -> f64 {
        let days = day_number(self.year, self.month, self.day) as f64;
        let minutes = (self.hour * 60 + self.minute - self.zone.unwrap_or(0)) as f64;
        days * 86_400.0 + minutes * 60.0 + self.second
    }
    fn zone_text(&self) -> String {
        match self.zone {
            None => String::new(),
            Some(0) => "Z".into(),
            Some(zone) => {
                let sign = if zone < 0 { '-' } else { '+' };
                format!("{sign}{:02}:{:02}", zone.abs() / 60, zone.abs() % 60)
            }
        }
    }
    pub fn date_text(&self) -> String {
        let sign = if self.year < 0 { "-" } else { "" };
        format!("{sign}{:04}-{:02}-{:02}", self.year.abs(), self.month, self.day)
    }
    pub fn time_text(&self) -> String {
        format!("{:02}:{:02}:{}", self.hour, self.minute, seconds_text(self.second, true))
    }
    pub fn text(&self) -> String {
        let sign = if self.year < 0 { "-" } else { "" };
        let body = match self.kind {
            StampKind::DateTime => format!("{}T{}", self.date_text(), self.time_text()),
            StampKind::Date => self.date_text(),
            StampKind::YearMonth => format!("{sign}{:04}-{:02}", self.year.abs(), self.month),
            StampKind::Year => format!("{sign}{:04}", self.year.abs()),
            StampKind::Time => self.time_text(),
            StampKind::MonthDay => format!("--{:02}-{:02}", self.month, self.day),
            StampKind::Month => format!("--{:02}--", self.month),
            StampKind::Day => format!("---{:02}", self.day),
        };
        body + &self.zone_text()
    }
    pub fn with_zone(&self, text: String) -> String {
        text + &self.zone_text()
    }
}

fn seconds_text(seconds: f64, padded: bool) -> String {
    let text = crate::xpath::number::text(seconds);
    match padded && seconds < 10.0 {
        true => format!("0{text}"),
        false => text,
    }
}

/// Parses a duration: `P1Y2M3DT4H5M6.7S`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut rest = rest.strip_prefix('P')?;
    let mut duration = Duration::default();
    let (mut in_time, mut units, mut last) = (false, 0, 0);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T').filter(|_| !in_time) {
            (rest, in_time, last) = (after, true, 3);
            units = 0;
            continue;
        }
        let length = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let number = rest.get(..length).filter(|text| !text.is_empty() && text.len() < 20)?;
        let unit = rest.as_bytes().get(length)?;
        let whole = number.parse::<i64>().ok().filter(|n| *n <= YEAR_MAX * 366);
        let order = match (in_time, unit) {
            (false, b'Y') => (duration.months += whole?.checked_mul(12)?, 1).1,
            (false, b'M') => (duration.months += whole?, 2).1,
            (false, b'D') => (duration.days += whole?, 3).1,
            (true, b'H') => (duration.seconds += whole? as f64 * 3600.0, 4).1,
            (true, b'M') => (duration.seconds += whole? as f64 * 60.0, 5).1,
            (true, b'S') => (duration.seconds += number.parse::<f64>().ok()?, 6).1,
            _ => return None,
        };
        if order <= last {
            return None;
        }
        (last, units) = (order, units + 1);
        rest = rest.get(length + 1..)?;
    }
    if units == 0 {
        return None;
    }
    let days = (duration.seconds / 86_400.0).floor();
    duration.days += days as i64;
    duration.seconds -= days * 86_400.0;
    Some(match sign < 0 {
        true => Duration { months: -duration.months, days: -duration.days, seconds: -duration.seconds },
        false => duration,
    })
}

impl Duration {
    /// Days take the sign of the seconds and back.
    pub fn normalized(mut self) -> Duration {
        let carry = (self.seconds / 86_400.0).trunc();
        self.days += carry as i64;
        self.seconds -= carry * 86_400.0;
        if self.days > 0 && self.seconds < 0.0 {
            (self.days, self.seconds) = (self.days - 1, self.seconds + 86_400.0);
        } else if self.days < 0 && self.seconds > 0.0 {
            (self.days, self.seconds) = (self.days + 1, self.seconds - 86_400.0);
        }
        self
    }
    pub fn text(&self) -> String {
        let negative = self.months < 0 || self.days < 0 || self.seconds < 0.0;
        let mut out = String::from(if negative { "-P" } else { "P" });
        let months = self.months.unsigned_abs();
        let (days, mut seconds) = (self.days.unsigned_abs(), self.seconds.abs());
        for (number, unit) in [(months / 12, 'Y'), (months % 12, 'M'), (days, 'D')] {
            if number > 0 {
                out.push_str(&format!("{number}{unit}"));
            }
        }
        if seconds > 0.0 {
            out.push('T');
            let hours = (seconds / 3600.0).floor();
            seconds -= hours * 3600.0;
            let minutes = (seconds / 60.0).floor();
            seconds -= minutes * 60.0;
            for (number, unit) in [(hours, 'H'), (minutes, 'M')] {
                if number > 0.0 {
                    out.push_str(&format!("{number}{unit}"));
                }
            }
            if seconds > 0.0 {
                out.push_str(&format!("{}S", seconds_text(seconds, false)));
            }
        }
        if out.ends_with('P') {
            out.push_str("T0S");
        }
        out
    }
}

/// Adds a duration (XML Schema part 2, appendix E).
pub(super) fn add(stamp: &DateParts, duration: &Duration) -> Option<DateParts> {
    let month = stamp.month - 1 + duration.months;
    let year = stamp.year + month.div_euclid(12);
    let month = month.rem_euclid(12) + 1;
    if year.abs() > YEAR_MAX || duration.days.abs() > YEAR_MAX * 366 {
        return None;
    }
    let seconds = stamp.second + duration.seconds;
    let (carry, second) = ((seconds / 60.0).floor(), seconds.rem_euclid(60.0));
    let minutes = stamp.hour * 60 + stamp.minute + carry as i64;
    let day = stamp.day.min(days_in_month(year, month));
    let days = day_number(year, month, day) + duration.days + minutes.div_euclid(1440);
    let (year, month, day) = civil(days);
    let minutes = minutes.rem_euclid(1440);
    let mut sum = DateParts { year, month, day, hour: minutes / 60, minute: minutes % 60, second, ..*stamp };
    let has_time = sum.hour != 0 || sum.minute != 0 || sum.second != 0.0;
    if has_time && stamp.kind != StampKind::Time {
        sum.kind = StampKind::DateTime;
        // As in libexslt, a sum with a time has a zone.
        sum.zone = sum.zone.or(Some(0));
    } else if stamp.kind == StampKind::Year && (month != 1 || day != 1) {
        sum.kind = if day != 1 { StampKind::Date } else { StampKind::YearMonth };
    } else if stamp.kind == StampKind::YearMonth && day != 1 {
        sum.kind = StampKind::Date;
    }
    Some(sum)
}
