use super::*;

const TEXT: &str = include_str!("../profiles/hdd-2007.toml");

fn field_of(text: &str) -> String {
    Profile::parse(text).expect_err("it must not parse").field
}

fn without(line: &str) -> String {
    TEXT.lines().filter(|l| !l.starts_with(line)).map(|l| format!("{l}\n")).collect()
}

#[test]
fn built_in_profiles_parse_and_say_where_each_number_comes_from() {
    assert_eq!(Profile::names().count(), 18);
    for name in Profile::names() {
        let profile = Profile::named(name).expect("it is built in");
        assert_eq!(profile.name(), name);
        assert!(profile.numbers().iter().all(|number| number.source.len() >= 5));
        assert!(profile.capacity_bytes() > 4 << 30 && profile.queue_depth() >= 1);
        let rate = |at| profile.media_rate_at(at);
        assert!(rate(0.0) >= rate(0.5) && rate(0.5) >= rate(1.0) && rate(1.0) > 1e6);
    }
    assert!(Profile::named("floppy").is_none());
    assert_eq!(Profile::named("hdd-2007").unwrap().kind(), Kind::Rotating);
    assert_eq!(Profile::named("sata-ssd").unwrap().kind(), Kind::Solid);
    assert_eq!(Profile::named("hdd-2007").unwrap().link_bytes_per_s(), 300_000_000);
}

#[test]
fn a_missing_field_is_named() {
    for number in Profile::named("hdd-2007").unwrap().numbers() {
        let text = without(&format!("{} =", number.field));
        assert_eq!(Profile::parse(&text).unwrap_err(), error(&number.field, "missing"));
    }
    for field in ["name", "description", "kind"] {
        assert_eq!(field_of(&without(&format!("{field} ="))), field);
    }
}

#[test]
fn an_unknown_wrong_or_impossible_field_is_named() {
    let sure = "source = \"s\", confidence = \"assumed\"";
    let cases = [
        (TEXT.replace("rpm = { value = 7200", "rpm = { value = \"x\""), "rpm.value"),
        (TEXT.replace("rpm = { value = 7200", "rpm = { value = 1"), "rpm"),
        (TEXT.replace("rpm = { value = 7200", "rpm = { value = nan"), "rpm"),
        (TEXT.replace("rpm = { value = 7200,", "rpm = { value = 7200, unit = 1,"), "rpm.unit"),
        (format!("{}rpm = 7200\n", without("rpm")), "rpm"),
        (format!("{TEXT}wheels = {{ value = 4, {sure} }}\n"), "wheels"),
        (format!("colour = \"red\"\n{TEXT}"), "colour"),
        (TEXT.replace("\"rotating\"", "\"floating\""), "kind"),
        (TEXT.replacen("\"source read\"", "\"certain\"", 1), "flush"),
        (
            TEXT.replace("inner_mb_per_s = { value = 42", "inner_mb_per_s = { value = 99"),
            "media_inner_mb_per_s",
        ),
        (
            TEXT.replace("average_ms = { value = 8.5", "average_ms = { value = 14"),
            "seek_average_ms",
        ),
        (TEXT.replace("average_ms = { value = 8.5", "average_ms = { value = 2"), "seek_average_ms"),
        (TEXT.replace("full_ms = { value = 15", "full_ms = { value = 0.1"), "seek_full_ms"),
        ("name = ".to_string(), "document"),
        ("name = 'a'\ndescription = 'b'\nkind = 'solid'\n".to_string(), "numbers"),
    ];
    for (text, field) in cases {
        assert_ne!(text, TEXT, "{field}: the case changes nothing");
        let found = field_of(&text);
        if field == "flush" {
            assert!(found.ends_with(".confidence"), "{found}");
        } else {
            assert_eq!(found, field);
        }
    }
}
