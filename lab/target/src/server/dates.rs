//! Seconds since 1970 as a DATETIME has them: year, month, day, hour, minute, second, without time zones.

const DAY: i64 = 86_400;
/// Days of four centuries.
const ERA_DAYS: i64 = 146_097;
/// Days from 1 March of year 0 to 1 January 1970.
const TO_1970: i64 = 719_468;

/// The parts. Years begin in March, so that the day that comes and goes is the last.
pub fn civil(seconds: i64) -> [i64; 6] {
    let (days, second) = (seconds.div_euclid(DAY) + TO_1970, seconds.rem_euclid(DAY));
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    [year + 400 * era, month, of_month, second / 3_600, second / 60 % 60, second % 60]
}

/// The seconds.
pub fn seconds([year, month, day, hour, minute, second]: [i64; 6]) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let days = era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1;
    (days - TO_1970) * DAY + hour * 3_600 + minute * 60 + second
}

/// `2023-11-14 22:13:20`, or with up to six digits behind a point, in microseconds.
pub fn parse_micros(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = [0; 6];
    let mut numbers = whole.split(['-', ' ', ':']);
    for part in &mut parts {
        *part = numbers.next()?.parse().ok()?;
    }
    let micros: i64 = format!("{rest:0<6}").parse().ok().filter(|_| rest.len() <= 6)?;
    numbers.next().is_none().then(|| seconds(parts) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_over_leap_years() {
        for (at, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_700_000_000, "2023-11-14 22:13:20"),
            (4_107_542_399, "2100-02-28 23:59:59"),
        ] {
            assert_eq!(parse_micros(text.as_bytes()), Some(at * 1_000_000), "{text}");
            assert_eq!(parse_micros(format!("{text}.05").as_bytes()), Some(at * 1_000_000 + 50_000), "{text}");
            assert_eq!(seconds(civil(at)), at, "{text}");
        }
        for day in 0..60_000 {
            assert_eq!(seconds(civil(day * DAY + 1)), day * DAY + 1);
        }
        assert_eq!((parse_micros(b"2023-11-14"), parse_micros(b"")), (None, None));
    }
}
