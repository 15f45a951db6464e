//! Where the URL of a server is cut: one rule for who reads it and for who hides its password.
//!
//! 1. User and password end at the last `@`, whatever is in them, and the parameters begin at the first `?` behind it.
//! 2. An `@` may stand in a parameter, as in the name of a file. It does where the parameters from an earlier `?` on are all
//!    ones that servers have, and a host and a database stand before it.
//!
//! In doubt an `@` is the end of the password: then too much is hidden and the rest is refused, never too little.

/// The parameters of servers that run; the first is not of PostgreSQL.
pub const PARAMETERS: [&str; 6] = ["engine", "protocol", "socket", "passfile", "tls", "ca"];

/// The pieces as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// What stands before `://`.
    pub scheme: &'a str,
    /// User and password.
    pub who: Option<&'a str>,
    /// Host, port and database.
    pub place: &'a str,
    /// All of it that is no parameter.
    pub head: &'a str,
    /// What stands behind the `?`.
    pub parameters: &'a str,
}

impl<'a> Url<'a> {
    /// Cuts it; nothing where it is none.
    #[must_use]
    pub fn of(text: &'a str) -> Option<Url<'a>> {
        let (scheme, rest) = text.split_once("://")?;
        let cut = parameters_at(rest);
        let before = &rest[..cut.unwrap_or(rest.len())];
        let (who, place) = match before.rsplit_once('@') {
            Some((who, place)) => (Some(who), place),
            None => (None, before),
        };
        let head = &text[..scheme.len() + "://".len() + before.len()];
        Some(Url { scheme, who, place, head, parameters: cut.map_or("", |at| &rest[at + 1..]) })
    }
}

fn parameters_at(rest: &str) -> Option<usize> {
    let last = rest.rfind('@');
    let mut marks = rest.match_indices('?').map(|(at, _)| at);
    marks.find(|at| last.is_none_or(|last| *at > last) || are_parameters(&rest[..*at], &rest[at + 1..]))
}

/// Whether the parameters begin here although an `@` is in them.
fn are_parameters(before: &str, parameters: &str) -> bool {
    let place = match before.rsplit_once('@') {
        Some((_, place)) => place,
        // It may be the beginning of a password.
        None if before.contains(':') => return false,
        None => before,
    };
    let is_place = place.split_once('/').is_some_and(|(_, database)| !database.is_empty() && !database.contains('/'));
    let is_known = |(key, value): (&str, &str)| PARAMETERS.contains(&key) && !value.contains('?');
    is_place && !place.contains('?') && parameters.split('&').all(|part| part.split_once('=').is_some_and(is_known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_ends_at_the_last_at_and_a_parameter_may_have_one() {
        for (text, who, place, parameters) in [
            ("x://me:a?b@h/d?tls=on", Some("me:a?b"), "h/d", "tls=on"),
            ("x://me:a?b@h/d", Some("me:a?b"), "h/d", ""),
            ("x://me:a@b?c=d@h:1/d?tls=on", Some("me:a@b?c=d"), "h:1/d", "tls=on"),
            ("x://me:a@b/c?d=e@h/d", Some("me:a@b/c?d=e"), "h/d", ""),
            ("x://me:a@b/c?tls=x@h/d?tls=on", Some("me:a@b/c?tls=x"), "h/d", "tls=on"),
            ("x://me:1/b?tls=c@h/d", Some("me:1/b?tls=c"), "h/d", ""),
            ("x://me:a@h/d?tls=on&passfile=/a@b/c", Some("me:a"), "h/d", "tls=on&passfile=/a@b/c"),
            ("x://me:a?b@h/d?ca=/a@b", Some("me:a?b"), "h/d", "ca=/a@b"),
            ("x://h/d?ca=/a@b", None, "h/d", "ca=/a@b"),
            ("x://h:1/d?a=b", None, "h:1/d", "a=b"),
            ("x://", None, "", ""),
        ] {
            let url = Url::of(text).unwrap();
            assert_eq!((url.who, url.place, url.parameters), (who, place, parameters), "{text}");
            let tail = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
            assert_eq!(format!("{}{tail}", url.head), text);
        }
        assert_eq!(Url::of("trefoil:structure=btree"), None);
    }
}
