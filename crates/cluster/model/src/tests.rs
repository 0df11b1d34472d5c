//! Names, checks and merging.

use crate::{
    Authority, Certificate, FileName, GroupName, HostName, HttpListener, ListenSocket, Model, ObjectOrigin,
    VirtualHost, anchor_pattern, check_field, decode_path,
};

fn host(name: &str) -> HostName {
    HostName::parse(name).expect(name)
}

#[test]
fn hosts_intersect_where_one_covers_the_other() {
    let cases = [
        ("a.example", "a.example", Some("a.example")),
        ("*.example", "a.example", Some("a.example")),
        ("*.example", "b.a.example", Some("b.a.example")),
        ("*.example", "example", None),
        ("*.example", "*.a.example", Some("*.a.example")),
        ("*.example", "aexample", None),
        ("", "*.a.example", Some("*.a.example")),
        ("a.example", "b.example", None),
    ];
    for (a, b, both) in cases {
        let expected = both.map(host);
        assert_eq!(host(a).intersection(&host(b)), expected, "{a} and {b}");
        assert_eq!(host(b).intersection(&host(a)), expected, "{b} and {a}");
    }
}

#[test]
fn a_name_of_a_host_has_labels_only() {
    for name in ["*", "*.", "a..b", "A.example", "a;b", "a b", "*.*.a", "-a", "a/b", "a.example.", "~^(.*)$", "$host"] {
        assert!(HostName::parse(name).is_err(), "{name}");
    }
}

#[test]
fn names_of_groups_and_files_cannot_be_confused_or_leave_their_folder() {
    assert_eq!(GroupName::new(&["shop", "api", "80"]).as_str(), "shop_api_80");
    assert_ne!(GroupName::new(&["a-b", "c"]), GroupName::new(&["a", "b-c"]));
    assert_eq!(GroupName::new(&["a b;", "c"]).as_str(), "a_20_b_3b__c");
    assert_eq!(FileName::new(&["shop", "tls.v1"]).as_str(), "shop/tls.v1");
    assert_eq!(FileName::new(&["..", "/etc"]).as_str(), "_2e./_2fetc");
}

#[test]
fn fields_paths_and_patterns_are_checked() {
    assert!(check_field("X-A", "a b").is_ok());
    for (name, value) in [("", "a"), ("a b", "a"), ("a:", "a"), ("a", "b\r\nc: d"), ("a", " b"), ("a", "\0")] {
        assert!(check_field(name, value).is_err(), "{name:?}: {value:?}");
    }
    assert_eq!(decode_path("/a%20b").as_deref(), Ok("/a b"));
    for path in ["a", "", "/a?b", "/%0a", "/%", "/%zz", "/%ff"] {
        assert!(decode_path(path).is_err(), "{path}");
    }
    assert_eq!(anchor_pattern("/a|/b").as_deref(), Ok("^(?:/a|/b)$"));
    for pattern in ["a)|(?:b", "(", "(?x) a # b", "a\0"] {
        assert!(anchor_pattern(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn a_key_must_belong_to_its_certificate() {
    let pair = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (a, b) = (pair("a.example"), pair("b.example"));
    let (chain, key) = (a.cert.pem(), a.signing_key.serialize_pem());
    assert!(Certificate::from_pem(chain.as_bytes(), key.as_bytes()).is_ok());
    let other = b.signing_key.serialize_pem();
    assert!(Certificate::from_pem(chain.as_bytes(), other.as_bytes()).is_err());
    assert!(Certificate::from_pem(b"Hello world", key.as_bytes()).is_err());
    assert!(Certificate::from_pem(chain.as_bytes(), b"Hello world").is_err());
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(Certificate::from_pem(broken.as_bytes(), key.as_bytes()).is_err());
    assert!(Authority::from_pem(chain.as_bytes()).is_ok());
    assert!(Authority::from_pem(broken.as_bytes()).is_err());
}

#[test]
fn merging_keeps_the_hosts_of_the_first_model() {
    let socket = ListenSocket { port: 80, address: None };
    let model = |kind: &str, is_tls: bool, names: &[&str]| {
        let hosts = names.iter().map(|name| VirtualHost {
            origin: ObjectOrigin::new(kind, "a", "b"),
            name: host(name),
            listener: None,
            tls: is_tls.then(Default::default),
            locations: Vec::new(),
            extra: Vec::new(),
        });
        let listener = HttpListener { is_tls, hosts: hosts.collect() };
        Model { http: [(socket, listener)].into(), ..Model::default() }
    };
    let mut first = model("Gateway", false, &["a.example"]);
    assert_eq!(first.merge(model("Ingress", false, &["a.example", "b.example"])), []);
    assert_eq!(first.http[&socket].hosts.len(), 2);
    let conflicts = first.merge(model("Ingress", true, &["c.example"]));
    assert_eq!(conflicts.len(), 1);
    assert_eq!(conflicts[0].to_string(), "port 80: the port is in use with another protocol");
}

#[test]
fn names_of_servers_have_the_forms_of_server_name() {
    let parse = HostName::parse_server_name;
    assert_eq!(parse("A.example.com"), Ok(HostName::Exact("a.example.com".into())));
    assert_eq!(parse("*.Example.com"), Ok(HostName::Wildcard("example.com".into())));
    assert_eq!(parse("www.example.*"), Ok(HostName::Prefix("www.example".into())));
    assert_eq!(parse(r"~^App\d+$"), Ok(HostName::Pattern(r"^App\d+$".into())));
    assert_eq!((parse("*"), parse("_")), (Ok(HostName::Any), Ok(HostName::Any)));
    for name in ["", "~(", "*.*", "a b", "a.*.b", ".*", "a.test;"] {
        assert!(parse(name).is_err(), "{name}");
    }
    let prefix = HostName::Prefix("www.example".into());
    assert!(prefix.covers(&HostName::Exact("www.example.com".into())));
    assert!(!prefix.covers(&HostName::Exact("www.example".into())));
    let mut names = [HostName::Any, HostName::Pattern("x".into()), prefix.clone(), HostName::Wildcard("a.test".into())];
    names.sort();
    assert_eq!(names[1], prefix, "wildcards first, expressions behind them");
    assert_eq!(prefix.to_string(), "www.example.*");
}
