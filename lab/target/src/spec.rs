//! The target string: `name`, or `name:key=value,key=value`.
//!
//! A URL (`mysql://…?key=value&key=value`) names its scheme; `server:mariadb?key=value&key=value` a product, which is the
//! parameter `product`. `name@<git ref>` asks for another version.

use std::collections::BTreeMap;
use std::fmt;

use crate::api::{Result, TargetError};
use crate::secret::{Secret, masked_target};
use crate::url::Url;

/// The parameter that holds what kind of server `server:` starts.
pub const PRODUCT: &str = "product";

/// A parsed target string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// What the user wrote, without the password of a URL: it stands in records and messages.
    pub text: String,
    /// The same with the password, for whoever connects.
    pub whole: Secret,
    /// The engine, or the scheme of a URL.
    pub name: String,
    /// The wanted version, after `@`.
    pub version: Option<String>,
    /// The parameters.
    pub parameters: BTreeMap<String, String>,
}

impl TargetSpec {
    /// Parses a target string.
    pub fn parse(text: &str) -> Result<TargetSpec> {
        let shown = masked_target(text);
        let whole = Secret(text.to_owned());
        let usage = |what: String| TargetError::Usage(format!("target `{shown}`: {what}"));
        if text.trim() != text || text.is_empty() {
            return Err(usage("empty, or blanks around it; example: trefoil:structure=btree".into()));
        }
        if let Some(url) = Url::of(text) {
            let parameters = parameters_of(url.parameters, &['&']).map_err(usage)?;
            return Ok(TargetSpec { text: shown, whole, name: url.scheme.into(), version: None, parameters });
        }
        let (head, tail) = text.split_once(':').unwrap_or((text, ""));
        if text.ends_with(':') {
            return Err(usage("nothing after the colon; example: trefoil:structure=btree".into()));
        }
        let (name, version) = match head.split_once('@') {
            Some((_, "")) => return Err(usage("no version after @".into())),
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (head, None),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
            return Err(usage(format!("`{name}` is not an engine name")));
        }
        let (product, tail) = match name {
            "server" => tail.split_once('?').map_or((Some(tail), ""), |(product, tail)| (Some(product), tail)),
            _ => (None, tail),
        };
        let mut parameters = parameters_of(tail, &[',', '?', '&']).map_err(usage)?;
        parameters.extend(product.map(|product| (PRODUCT.to_owned(), product.to_owned())));
        Ok(TargetSpec { text: text.into(), whole, name: name.into(), version, parameters })
    }

    /// Takes a parameter out, so that what is left over can be reported.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.parameters.remove(key)
    }

    /// Takes a whole number out.
    pub fn take_number(&mut self, key: &str) -> Result<Option<u64>> {
        match self.take(key) {
            None => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| {
                TargetError::Usage(format!("target `{}`: `{key}={value}` is not a whole number", self.text))
            }),
        }
    }

    /// Takes a size out: `k`, `m` and `g` are KiB, MiB and GiB.
    pub fn take_bytes(&mut self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let (digits, unit) = match value.as_bytes().last() {
            Some(b'k' | b'K') => (&value[..value.len() - 1], 1 << 10),
            Some(b'm' | b'M') => (&value[..value.len() - 1], 1 << 20),
            Some(b'g' | b'G') => (&value[..value.len() - 1], 1 << 30),
            _ => (value.as_str(), 1),
        };
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes.map(Some).ok_or_else(|| {
            TargetError::Usage(format!("target `{}`: `{key}={value}` is not a size; example: {key}=4m", self.text))
        })
    }

    /// Refuses what no one has taken.
    pub fn finish(self, known: &[&str]) -> Result<()> {
        match self.parameters.keys().next() {
            None => Ok(()),
            Some(key) if known.is_empty() => Err(TargetError::Usage(format!(
                "target `{}`: `{}` takes no parameters, but got `{key}`",
                self.text, self.name
            ))),
            Some(key) => Err(TargetError::Usage(format!(
                "target `{}`: `{}` has no parameter `{key}`; it has {}",
                self.text,
                self.name,
                known.join(", ")
            ))),
        }
    }
}

fn parameters_of(text: &str, separators: &[char]) -> Result<BTreeMap<String, String>, String> {
    let mut parameters = BTreeMap::new();
    for part in text.split(separators).filter(|_| !text.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not key=value"))?;
        if key.is_empty() || value.is_empty() {
            return Err(format!("`{part}` lacks a key or a value"));
        }
        if parameters.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("`{key}` is given twice"));
        }
    }
    Ok(parameters)
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_and_a_name_with_parameters() {
        let spec = TargetSpec::parse("trefoil").unwrap();
        assert_eq!((spec.name.as_str(), spec.parameters.len()), ("trefoil", 0));
        let mut spec = TargetSpec::parse("trefoil@v1:structure=btree,log_capacity=4m").unwrap();
        assert_eq!(spec.version.as_deref(), Some("v1"));
        assert_eq!(spec.take("structure").as_deref(), Some("btree"));
        let left = spec.finish(&["structure"]).unwrap_err().to_string();
        assert!(left.contains("no parameter `log_capacity`") && left.contains("it has structure"), "{left}");
    }

    #[test]
    fn a_url_and_a_server_have_parameters_too() {
        let spec = TargetSpec::parse("mysql://root:a,b@localhost/test?engine=innodb&protocol=text").unwrap();
        assert_eq!((spec.name.as_str(), spec.parameters.len()), ("mysql", 2));
        assert_eq!(spec.parameters["engine"], "innodb");
        assert_eq!(spec.text, "mysql://root:***@localhost/test?engine=innodb&protocol=text");
        assert!(!format!("{spec:?}").contains("a,b") && spec.whole.0.contains("a,b"));
        let mut spec = TargetSpec::parse("server:mariadb?engine=rocksdb&dir=/opt/a").unwrap();
        assert_eq!(spec.take(PRODUCT).as_deref(), Some("mariadb"));
        assert_eq!(spec.parameters["dir"], "/opt/a");
        assert!(TargetSpec::parse("mysql://root@localhost/test?engine").is_err());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("", "empty"),
            (" trefoil", "blanks"),
            ("trefoil:", "after the colon"),
            ("trefoil@", "no version"),
            ("tre foil", "not an engine name"),
            ("trefoil:structure", "not key=value"),
            ("trefoil:structure=", "lacks"),
            ("trefoil:a=1,a=2", "twice"),
        ] {
            let message = TargetSpec::parse(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
        let mut spec = TargetSpec::parse("model:pause_ms=soon").unwrap();
        assert!(spec.take_number("pause_ms").unwrap_err().to_string().contains("whole number"));
        let mut spec = TargetSpec::parse("trefoil:a=4m,b=512,c=4mb,d=99999999999999999999g").unwrap();
        assert_eq!((spec.take_bytes("a").unwrap(), spec.take_bytes("b").unwrap()), (Some(4 << 20), Some(512)));
        assert!(spec.take_bytes("c").unwrap_err().to_string().contains("not a size"));
        assert!(spec.take_bytes("d").is_err() && spec.take_bytes("e").unwrap().is_none());
    }
}
