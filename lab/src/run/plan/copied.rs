//! The plan's file as its folder has it: the same text, without the passwords of its targets.
//!
//! What TOML reads is masked, and written where it stood: a password may be written with escapes, and may belong to a target
//! that no run has.

use lab_target::secret::{masked_target, masked_text};

use super::source::{Located, Source, Value};
use crate::outcome::Failure;

/// All of the file, whatever its targets are for.
pub fn without_passwords(source: &Source) -> Result<String, Failure> {
    let mut top = source.parsed()?;
    let sections = top.take_sections(source, "target")?;
    let used = |section: &super::source::Section| match section.keys.get("use") {
        Some((_, Located { at, end, value: Value::Word(target) })) => Some((*at, *end, target.clone())),
        _ => None,
    };
    let mut uses: Vec<(usize, usize, String)> = sections.iter().filter_map(used).collect();
    uses.sort_unstable();
    let (mut out, mut behind) = (String::with_capacity(source.text.len()), 0);
    for (at, end, target) in &uses {
        let masked = masked_target(target);
        if masked != *target {
            out.push_str(&source.text[behind..*at]);
            out.push_str(&quoted(&masked));
            behind = *end;
        }
    }
    out.push_str(&source.text[behind..]);
    // A comment may have the target of before.
    let targets: Vec<String> = uses.into_iter().map(|(_, _, target)| target).collect();
    Ok(masked_text(&out, &targets))
}

/// As a text of TOML, whose escapes are those of JSON and one more.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_all_targets_are_left_out_however_they_are_written() {
        let text = r#"# mysql://me:s3cr1@h/d, of before
name = "p" # stays
[[target]]
name = "a"
use = "mysql://me:s3c\"r\u00322'/<>&?@h/d?engine=innodb" # a remark
[[target]]
"use" = '''
postgres://me:s3cr/3'@h/d\x?tls=on'''
name = "b"
[[target]]
use = "model" # s
name = "c"
[[target]]
name = "d"
use = """postgres://\u006de:\
   s3cr4?\u0040x@h/d"""
"#;
        let copied = without_passwords(&Source { name: "p.toml".into(), text: text.into() }).unwrap();
        let wanted = r#"# mysql://me:***@h/d, of before
name = "p" # stays
[[target]]
name = "a"
use = "mysql://me:***@h/d?engine=innodb" # a remark
[[target]]
"use" = "postgres://me:***@h/d\\x?tls=on"
name = "b"
[[target]]
use = "model" # s
name = "c"
[[target]]
name = "d"
use = "postgres://me:***@h/d"
"#;
        assert_eq!(copied, wanted);
        let inline = r#"target = [{ name = "a", use = "mysql://me:s\u003ae@h/d" }]"#;
        let copied = without_passwords(&Source { name: "p.toml".into(), text: inline.into() }).unwrap();
        assert_eq!(copied, r#"target = [{ name = "a", use = "mysql://me:***@h/d" }]"#);
        let again = Source { name: "p.toml".into(), text: copied.clone() };
        assert_eq!(without_passwords(&again).unwrap(), copied);
    }
}
