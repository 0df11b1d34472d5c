//! Certificate times: seconds since 1970, and OpenSSL's text.

use crate::der::{Element, GENERALIZED_TIME, UTC_TIME};

/// UTCTime or GeneralizedTime in seconds since 1970 (RFC 5280, 4.1.2.5: in Z, with seconds).
pub(crate) fn parse(element: Element<'_>) -> Option<i64> {
    let digits = element.body.strip_suffix(b"Z")?;
    let (year, rest) = match element.tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    if rest.len() != 8 && rest.len() != 10 {
        return None;
    }
    let mut parts = rest.chunks(2).map(number);
    let (month, day, hour, minute) = (parts.next()??, parts.next()??, parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0_i64, |sum, d| d.is_ascii_digit().then(|| sum * 10 + i64::from(d - b'0')))
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March, so that the leap day is last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// As `ASN1_TIME_print`: `Jan  1 00:00:00 2026 GMT`.
pub fn print_time(seconds: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let name = MONTHS.get((month - 1) as usize).unwrap_or(&"Jan");
    format!("{name} {day:>2} {:02}:{:02}:{:02} {year} GMT", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str, tag: u8) -> Option<i64> {
        parse(Element { tag, body: text.as_bytes(), whole: &[] })
    }

    #[test]
    fn times_are_read_and_printed() {
        for (text, tag, seconds, printed) in [
            ("700101000000Z", UTC_TIME, 0, "Jan  1 00:00:00 1970 GMT"),
            ("261122100834Z", UTC_TIME, 1_795_342_114, "Nov 22 10:08:34 2026 GMT"),
            ("20500229235959Z", GENERALIZED_TIME, 0, ""),
            ("20480229235959Z", GENERALIZED_TIME, 2_466_633_599, "Feb 29 23:59:59 2048 GMT"),
            ("99991231235959Z", GENERALIZED_TIME, 253_402_300_799, "Dec 31 23:59:59 9999 GMT"),
        ] {
            if printed.is_empty() {
                // 2050 has no February 29; OpenSSL takes the next day, as does the sum.
                assert_eq!(utc(text, tag).map(print_time).as_deref(), Some("Mar  1 23:59:59 2050 GMT"));
                continue;
            }
            assert_eq!(utc(text, tag), Some(seconds), "{text}");
            assert_eq!(print_time(seconds), printed);
        }
        for (text, tag) in [("700101000000", UTC_TIME), ("701301000000Z", UTC_TIME), ("7001x1000000Z", UTC_TIME)] {
            assert_eq!(utc(text, tag), None, "{text}");
        }
    }
}
