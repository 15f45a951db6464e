//! Passwords in target strings are for whoever connects; records, messages and pages have three stars instead.

use std::fmt;

use crate::url::Url;

/// Stands where a password was.
pub const STARS: &str = "***";

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(STARS)
    }
}

/// User and password of a URL as they stand in it; nothing where there is no password.
#[must_use]
pub fn user_and_password(target: &str) -> Option<(&str, &str)> {
    let (user, password) = Url::of(target)?.who?.split_once(':')?;
    (!password.is_empty()).then_some((user, password))
}

/// A target string without its password.
#[must_use]
pub fn masked_target(target: &str) -> String {
    match user_and_password(target) {
        Some((user, password)) => target.replacen(&format!("{user}:{password}@"), &format!("{user}:{STARS}@"), 1),
        None => target.to_owned(),
    }
}

/// A text without the passwords of these targets, and without whatever else looks like `://user:password@`.
#[must_use]
pub fn masked_text(text: &str, targets: &[String]) -> String {
    let mut known: Vec<(&str, &str)> = targets.iter().filter_map(|target| user_and_password(target)).collect();
    // The longest first: one may be the beginning of another.
    known.sort_by_key(|(user, password)| std::cmp::Reverse(user.len() + password.len()));
    let without = known.iter().fold(text.to_owned(), |text, (user, password)| {
        text.replace(&format!("{user}:{password}@"), &format!("{user}:{STARS}@"))
    });
    masked(&without)
}

/// Hides what looks like a password: `://user:password@`.
#[must_use]
pub fn masked(text: &str) -> String {
    let ends = |letter: char| letter.is_whitespace() || "/\"'<>?&".contains(letter);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find("://") {
        let (before, behind) = rest.split_at(place + 3);
        out.push_str(before);
        let place = &behind[..behind.find(ends).unwrap_or(behind.len())];
        rest = behind;
        if let Some((user, _)) = place.rsplit_once('@').and_then(|(user, _)| user.split_once(':')) {
            out.push_str(&format!("{user}:{STARS}"));
            rest = &behind[place.rfind('@').unwrap_or(0)..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_password_is_hidden_wherever_it_stands() {
        assert_eq!(
            masked("a mysql://root:s@e:c@host:3306/db?engine=innodb, b \"postgres://me:x@h/d\""),
            "a mysql://root:***@host:3306/db?engine=innodb, b \"postgres://me:***@h/d\""
        );
        for text in ["mysql://root@host:3306/db", "http://127.0.0.1:80/ a:b@c", "no address", "x://"] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn a_password_with_a_question_mark_is_hidden() {
        for (target, shown) in [
            ("postgres://me:a?b@h/d?tls=on", "postgres://me:***@h/d?tls=on"),
            ("postgres://me:a?b@h/d", "postgres://me:***@h/d"),
            ("mysql://me:a@b?c=d@h/d?engine=innodb", "mysql://me:***@h/d?engine=innodb"),
            ("mysql://me:a@h/d?engine=innodb&ca=/a@b", "mysql://me:***@h/d?engine=innodb&ca=/a@b"),
        ] {
            assert_eq!(masked_target(target), shown);
            assert_eq!(masked_target(shown), shown);
            assert_eq!(masked_text(&format!("`{target}`"), &[target.to_owned()]), format!("`{shown}`"));
        }
    }

    #[test]
    fn a_known_password_is_hidden_whatever_is_in_it() {
        let target = "mysql://root:s/e'c@h@host/db?engine=innodb";
        assert_eq!(user_and_password(target), Some(("root", "s/e'c@h")));
        assert_eq!(masked_target(target), "mysql://root:***@host/db?engine=innodb");
        assert_eq!(masked_target(&masked_target(target)), masked_target(target));
        assert_eq!(masked_target("mysql://root@host/db"), "mysql://root@host/db");
        let text = format!("lab run ibench --target={target}");
        assert_eq!(
            masked_text(&text, &[target.to_owned()]),
            "lab run ibench --target=mysql://root:***@host/db?engine=innodb"
        );
        assert_eq!(format!("{:?}", Secret("s".into())), "***");
    }
}
