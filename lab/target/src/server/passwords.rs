//! Passwords that do not stand in a target, where the servers' own clients look for them: in the file that `passfile=` names, in
//! a variable of the environment, in a file of the user's home.

use std::path::{Path, PathBuf};

use super::postgres;
use crate::secret::Secret;
use crate::spec::TargetSpec;

/// Of a target as a run folder has it, or as somebody writes it who wants to be asked elsewhere.
fn none_found(variable: &str, file: &str) -> String {
    format!(
        "passwords are not kept in run folders, and none was found: set {variable}, or name a file with passfile= (or {file})"
    )
}

/// PostgreSQL's: what the target has, else lines of `host:port:database:user:password`. `is_wanted`: it has to be somewhere.
pub fn of_postgres(
    spec: &mut TargetSpec,
    address: &postgres::Address,
    is_wanted: bool,
) -> Result<Option<Secret>, String> {
    let named = spec.take("passfile").map(PathBuf::from);
    if address.password.is_some() {
        return Ok(address.password.clone());
    }
    let found = looked_for(named, ("PGPASSWORD", "PGPASSFILE", ".pgpass"), &|text| line_for(text, address))?;
    if found.is_none() && is_wanted { Err(none_found("PGPASSWORD", "~/.pgpass")) } else { Ok(found) }
}

/// That of MariaDB and MySQL: `password` in the group `[client]` of an option file, of this user or of none.
pub fn of_mysql(spec: &mut TargetSpec, user: &str, is_wanted: bool) -> Result<Option<Secret>, String> {
    let named = spec.take("passfile").map(PathBuf::from);
    let found = looked_for(named, ("MYSQL_PWD", "", ".my.cnf"), &|text| of_client(text, user))?;
    if found.is_none() && is_wanted { Err(none_found("MYSQL_PWD", "~/.my.cnf")) } else { Ok(found) }
}

fn looked_for(
    named: Option<PathBuf>,
    (variable, file_variable, file): (&str, &str, &str),
    find: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Secret>, String> {
    let read = |path: &Path| std::fs::read_to_string(path);
    if let Some(path) = named {
        let text = read(&path).map_err(|error| format!("passfile={}: {error}", path.display()))?;
        return Ok(find(&text).map(Secret));
    }
    let of = |name: &str| std::env::var_os(name).filter(|_| !name.is_empty());
    if let Some(password) = of(variable).and_then(|password| password.into_string().ok()) {
        return Ok(Some(Secret(password)));
    }
    let at_home = || Some(PathBuf::from(of("HOME")?).join(file));
    let path = of(file_variable).map(PathBuf::from).or_else(at_home);
    Ok(path.and_then(|path| read(&path).ok()).and_then(|text| find(&text)).map(Secret))
}

/// Lines of `host:port:database:user:password`, where a star stands for anything.
fn line_for(text: &str, address: &postgres::Address) -> Option<String> {
    let wanted = [&address.host, &address.port.to_string(), &address.database, &address.user];
    let of_line = |line: &str| {
        let mut parts = line.splitn(5, ':');
        let fits = wanted.iter().all(|own| parts.next().is_some_and(|part| part == "*" || part == own.as_str()));
        parts.next().filter(|_| fits).map(str::to_owned)
    };
    text.lines().filter(|line| !line.starts_with('#')).find_map(of_line)
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
        let wanted = postgres::Address {
            host: "db.example".into(),
            port: 5433,
            socket: None,
            user: "me".into(),
            password: None,
            database: "test".into(),
            tls: Tls::Off,
        };
        let file = "# mine\nother:*:*:*:no\ndb.example:*:test:me:se:cret\n";
        assert_eq!(line_for(file, &wanted).as_deref(), Some("se:cret"));
        assert_eq!(line_for("db.example:5432:*:*:no", &wanted), None);
        let file = "[mysqld]\npassword=no\n[client]\n# password=no\nuser = me\npassword = \"s=e'c\"\n";
        assert_eq!(of_client(file, "me").as_deref(), Some("s=e'c"));
        assert_eq!(of_client(file, "other"), None);
        assert_eq!(of_client("[client]\npassword=x", "other").as_deref(), Some("x"));
    }

    #[test]
    fn a_file_that_is_named_has_the_password_of_a_target_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cnf");
        std::fs::write(&path, "[client]\npassword=secret\n").unwrap();
        let target = format!("mysql://me:***@h/d?passfile={}", path.display());
        let mut spec = TargetSpec::parse(&target).unwrap();
        assert_eq!(of_mysql(&mut spec, "me", true).unwrap(), Some(Secret("secret".into())));
        assert!(spec.take("passfile").is_none());
    }
}
