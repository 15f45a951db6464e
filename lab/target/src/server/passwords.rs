//! Passwords that do not stand in a target, where the servers' own clients look for them: in the file that `passfile=` names, in
//! a variable of the environment, in a file of the user's home.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::address::Address;
use crate::secret::Secret;
use crate::spec::TargetSpec;

/// Of a target as a run folder has it, or as somebody writes it who wants to be asked elsewhere.
fn none_found(variable: &str, file: &str) -> String {
    format!(
        "passwords are not kept in run folders, and none was found: set {variable}, or name a file with passfile= (or {file})"
    )
}

/// PostgreSQL's: what the target has, else lines of `host:port:database:user:password`. `is_wanted`: it has to be somewhere.
pub fn of_postgres(spec: &mut TargetSpec, address: &Address, is_wanted: bool) -> Result<Option<Secret>, String> {
    let named = spec.take("passfile").map(PathBuf::from);
    if address.password.is_some() {
        return Ok(address.password.clone());
    }
    let Address { host, port, user, .. } = address;
    let database = address.database.as_deref().unwrap_or_default();
    let places = Places {
        variable: "PGPASSWORD",
        file_variable: "PGPASSFILE",
        file: ".pgpass",
        is_own: true,
        wanted: format!("no line for {host}:{port}:{database}:{user} (host:port:database:user:password)"),
    };
    let found = looked_for(named, &places, &|text| line_for(text, address))?;
    if found.is_none() && is_wanted { Err(none_found("PGPASSWORD", "~/.pgpass")) } else { Ok(found) }
}

/// That of MariaDB and MySQL: `password` in the group `[client]` of an option file, of this user or of none.
pub fn of_mysql(spec: &mut TargetSpec, user: &str, host: &str, is_wanted: bool) -> Result<Option<Secret>, String> {
    let named = spec.take("passfile").map(PathBuf::from);
    let places = Places {
        variable: "MYSQL_PWD",
        file_variable: "",
        file: ".my.cnf",
        is_own: false,
        wanted: format!(
            "no password for {user} at {host} (a group [client] with `password`, and no `user` or this one)"
        ),
    };
    let found = looked_for(named, &places, &|text| of_client(text, user))?;
    if found.is_none() && is_wanted { Err(none_found("MYSQL_PWD", "~/.my.cnf")) } else { Ok(found) }
}

/// Where a password is looked for that the target does not have.
struct Places {
    variable: &'static str,
    /// A variable that names the file.
    file_variable: &'static str,
    /// A file of the home.
    file: &'static str,
    /// Whether the server's own client refuses such a file if it is not its owner's alone.
    is_own: bool,
    /// What a file that is named lacks if it has no password.
    wanted: String,
}

fn looked_for(
    named: Option<PathBuf>,
    places: &Places,
    find: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Secret>, String> {
    if let Some(path) = named {
        let wrong = |what: String| format!("passfile={}: {what}", path.display());
        let (text, is_open) = read(&path).map_err(|error| wrong(error.to_string()))?;
        let password = find(&text).ok_or_else(|| wrong(places.wanted.clone()))?;
        return if is_open { Err(wrong(OPEN.into())) } else { Ok(Some(Secret(password))) };
    }
    let of = |name: &str| std::env::var_os(name).filter(|_| !name.is_empty());
    if let Some(password) = of(places.variable).and_then(|password| password.into_string().ok()) {
        return Ok(Some(Secret(password)));
    }
    let at_home = || Some(PathBuf::from(of("HOME")?).join(places.file));
    let Some(path) = of(places.file_variable).map(PathBuf::from).or_else(at_home) else { return Ok(None) };
    let Ok((text, is_open)) = read(&path) else { return Ok(None) };
    match find(&text) {
        Some(_) if is_open && places.is_own => Err(format!("{}: {OPEN}", path.display())),
        found => Ok(found.map(Secret)),
    }
}

/// Said of a file that others may open.
const OPEN: &str = "others than its owner may open this file of passwords: chmod 600";

/// The text of a file, and whether others than its owner may open it. What is no plain file is a pipe of whoever asks.
fn read(path: &Path) -> std::io::Result<(String, bool)> {
    let mut file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((text, metadata.is_file() && metadata.permissions().mode() & 0o077 != 0))
}

/// Lines of `host:port:database:user:password`, where a star stands for anything, and `\:` and `\\` for what is behind the stroke.
fn line_for(text: &str, address: &Address) -> Option<String> {
    let port = address.port.to_string();
    let database = address.database.as_deref().unwrap_or_default();
    let wanted = [address.host.as_str(), &port, database, &address.user];
    let of_line = |line: &str| {
        let mut rest = line;
        for own in wanted {
            let (part, behind) = field(rest)?;
            rest = behind;
            if part != "*" && unescaped(part) != own {
                return None;
            }
        }
        Some(unescaped(rest))
    };
    text.lines().filter(|line| !line.starts_with('#')).find_map(of_line)
}

/// What stands before the first colon that is one, as it is written, and what stands behind it.
fn field(line: &str) -> Option<(&str, &str)> {
    let mut letters = line.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            ':' => return Some((&line[..at], &line[at + 1..])),
            '\\' => drop(letters.next()),
            _ => (),
        }
    }
    None
}

/// A text without its strokes, except those that stand behind one.
fn unescaped(text: &str) -> String {
    let mut letters = text.chars();
    let next = || match letters.next() {
        Some('\\') => Some(letters.next().unwrap_or('\\')),
        other => other,
    };
    std::iter::from_fn(next).collect()
}

/// `password` of the group `[client]`, unless the group is of another user.
fn of_client(text: &str, user: &str) -> Option<String> {
    let (mut group, mut owner, mut password) = ("", None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            group = name.trim();
        } else if let ("client", Some((key, value))) = (group, line.split_once('=')) {
            let value = value.trim();
            let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
            let value = quoted.unwrap_or(value).to_owned();
            match key.trim() {
                "user" => owner = Some(value),
                "password" => password = Some(value),
                _ => (),
            }
        }
    }
    password.filter(|_| owner.is_none_or(|owner| owner == user))
}

#[cfg(test)]
mod tests {
    use super::super::tls::Tls;
    use super::*;

    #[test]
    fn a_line_of_postgres_and_a_group_of_mysql() {
        let wanted = Address {
            host: "db.example".into(),
            port: 5433,
            socket: None,
            user: "me".into(),
            password: None,
            database: Some("test".into()),
            tls: Tls::Off,
        };
        let file = "# mine\nother:*:*:*:no\ndb.example:*:test:me:se:cret\n";
        assert_eq!(line_for(file, &wanted).as_deref(), Some("se:cret"));
        assert_eq!(line_for("db.example:5432:*:*:no", &wanted), None);
        // Strokes, as PostgreSQL's own client reads them.
        let address = Address { host: "::1".into(), user: "a\\b".into(), ..wanted };
        assert_eq!(line_for(r"\:\:1:5433:*:a\\b:s\:e\\c:r\x\", &address).as_deref(), Some(r"s:e\c:rx\"));
        assert_eq!(line_for(r"::1:5433:*:a\\b:no", &address), None);
        assert_eq!(line_for(r"\:\:1:5433:*:a\b:no", &address), None);
        let file = "[mysqld]\npassword=no\n[client]\n# password=no\nuser = me\npassword = \"s=e'c\"\n";
        assert_eq!(of_client(file, "me").as_deref(), Some("s=e'c"));
        assert_eq!(of_client(file, "other"), None);
        assert_eq!(of_client("[client]\npassword=x", "other").as_deref(), Some("x"));
    }

    #[test]
    fn a_file_that_is_named_has_the_password_of_a_target_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cnf");
        let asked = |user: &str, text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let mut spec = TargetSpec::parse(&format!("mysql://{user}@h/d?passfile={}", path.display())).unwrap();
            let found = of_mysql(&mut spec, user, "db.example", true);
            assert!(spec.take("passfile").is_none());
            found
        };
        let text = "[client]\nuser=me\npassword=secret\n";
        assert_eq!(asked("me", text, 0o600).unwrap(), Some(Secret("secret".into())));
        assert_eq!(asked("me", text, 0o400).unwrap(), Some(Secret("secret".into())));
        let named = path.display().to_string();
        for (user, mode, words) in
            [("me", 0o644, "chmod 600"), ("me", 0o640, "chmod 600"), ("you", 0o600, "you at db.example")]
        {
            let complaint = asked(user, text, mode).unwrap_err();
            assert!(complaint.contains(words) && complaint.contains(&named), "{complaint}");
            assert!(!complaint.contains("secret"), "{complaint}");
        }
    }
}
