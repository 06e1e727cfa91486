//! What `smartctl -i` (also `-x`, `-a`, `--json`) prints of disks: which they are.
//!
//! A model of the catalogue is that disk, with the capacity that the text states. Another one is
//! described by the text alone: capacity, rotation, form factor, protocol.
//!
//! Invariant: any text ends in disks or in an error; no number of a text is trusted beyond its
//! range.

use serde_json::Value;
use thiserror::Error;

use super::{ASSUMED, Disk, DiskKind, Recording, of_model};

/// A disk in a text of smartctl's.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The model that it reports.
    pub model: String,
    /// Its serial number, where it is printed.
    pub serial: Option<String>,
    /// The disk: of the catalogue, or as far as the text says.
    pub disk: Disk,
    /// Whether the catalogue has it.
    pub is_known: bool,
}

/// A text that describes no disk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SmartctlError {
    /// Nothing in it is a disk of smartctl's.
    #[error("no disk in it: what `smartctl -i`, -x or --json -i prints is required")]
    None,
    /// A disk without a capacity.
    #[error("{0}: the text does not say its capacity, and the catalogue has no such disk")]
    NoCapacity(String),
    /// The same disk twice.
    #[error("{0}: the disk with this serial number is there twice")]
    Twice(String),
}

/// What one text says of one disk.
#[derive(Default)]
struct Said {
    model: Option<String>,
    vendor: Option<String>,
    family: Option<String>,
    serial: Option<String>,
    bytes: Option<f64>,
    rpm: Option<f64>,
    is_solid: bool,
    is_nvme: bool,
    is_sas: bool,
    form_factor: Option<String>,
    has_trim: bool,
    is_zoned: bool,
    /// What its link carries now, MB/s.
    link_mb_per_s: Option<f64>,
}

/// The disks of a text, in its order.
///
/// # Errors
/// It has none; one is there twice, or has no capacity.
pub fn parse(text: &str) -> Result<Vec<Seen>, SmartctlError> {
    let said =
        if text.trim_start().starts_with(['{', '[']) { of_json(text) } else { of_text(text) };
    let mut all: Vec<Seen> = Vec::new();
    for one in said {
        let Some(seen) = one.seen()? else { continue };
        let same = |other: &Seen| seen.serial.is_some() && other.serial == seen.serial;
        if all.iter().any(same) {
            return Err(SmartctlError::Twice(seen.serial.unwrap_or_default()));
        }
        all.push(seen);
    }
    if all.is_empty() { Err(SmartctlError::None) } else { Ok(all) }
}

fn of_text(text: &str) -> Vec<Said> {
    let mut all: Vec<Said> = Vec::new();
    let mut one = Said::default();
    for line in text.lines() {
        // The head of another disk's output.
        if line.starts_with("smartctl ") || line.contains("START OF INFORMATION SECTION") {
            if one.model.is_some() {
                all.push(std::mem::take(&mut one));
            }
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if value.is_empty() {
            continue;
        }
        let first = |slot: &mut Option<String>| {
            slot.get_or_insert_with(|| value.to_string());
        };
        match key.trim() {
            "Device Model" => first(&mut one.model),
            "Product" => {
                one.is_sas = true;
                first(&mut one.model);
            }
            "Model Number" => {
                one.is_nvme = true;
                first(&mut one.model);
            }
            "Vendor" => first(&mut one.vendor),
            "Model Family" => first(&mut one.family),
            "Serial Number" | "Serial number" => first(&mut one.serial),
            "User Capacity" | "Total NVM Capacity" | "Namespace 1 Size/Capacity" => {
                one.bytes = one.bytes.or_else(|| bytes_in(value));
            }
            "Rotation Rate" => one.rotation(value),
            "Form Factor" => first(&mut one.form_factor),
            "Transport protocol" => one.is_sas |= value.starts_with("SAS"),
            "TRIM Command" => one.has_trim = value.starts_with("Available"),
            "Zoned Device" => one.is_zoned = true,
            "SATA Version is" => one.link_mb_per_s = link_in(value),
            _ => {}
        }
    }
    if one.model.is_some() {
        all.push(one);
    }
    all
}

/// `8,001,563,222,016 bytes [8.00 TB]`: the first number, with commas, dots or blanks in it.
fn bytes_in(text: &str) -> Option<f64> {
    let end = text.find(['b', '[']).unwrap_or(text.len());
    let digits: String = text[..end].chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// `SATA 3.0, 6.0 Gb/s (current: 3.0 Gb/s)`: what the link carries now.
fn link_in(text: &str) -> Option<f64> {
    let (_, now) = text.split_once("(current:")?;
    payload(now.split_once("Gb/s")?.0.trim().parse().ok()?)
}

/// MB/s of a link of SATA of a rate in Gb/s: ten bits on the line are a byte (8b/10b).
fn payload(gigabits: f64) -> Option<f64> {
    (1.0..=24.0).contains(&gigabits).then_some(100.0 * gigabits)
}

fn of_json(text: &str) -> Vec<Said> {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let documents = documents.map_while(Result::ok).flat_map(|value| match value {
        Value::Array(all) => all,
        one => vec![one],
    });
    documents.map(|value| Said::of_document(&value)).collect()
}

impl Said {
    fn rotation(&mut self, value: &str) {
        let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        self.rpm = value[..end].parse().ok();
        self.is_solid = value.starts_with("Solid");
    }

    fn of_document(value: &Value) -> Said {
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_string);
        let number = |path: &str| value.pointer(path).and_then(Value::as_f64);
        let protocol = text("/device/protocol").unwrap_or_default();
        let rotation = number("/rotation_rate");
        let of_scsi = || text("/scsi_model_name").or_else(|| text("/scsi_product"));
        Said {
            model: text("/model_name").or_else(of_scsi),
            vendor: text("/scsi_vendor").or_else(|| text("/vendor")),
            family: text("/model_family"),
            serial: text("/serial_number"),
            bytes: number("/user_capacity/bytes").or_else(|| number("/nvme_total_capacity")),
            rpm: rotation.filter(|rpm| *rpm > 0.0),
            is_solid: rotation == Some(0.0),
            is_nvme: protocol == "NVMe",
            is_sas: protocol == "SCSI",
            form_factor: text("/form_factor/name"),
            has_trim: value.pointer("/trim/supported").and_then(Value::as_bool) == Some(true),
            is_zoned: value.get("zoned_device").is_some(),
            link_mb_per_s: number("/interface_speed/current/units_per_second")
                .zip(number("/interface_speed/current/bits_per_unit"))
                .and_then(|(units, bits)| payload(units * bits / 1e9)),
        }
    }

    fn seen(self) -> Result<Option<Seen>, SmartctlError> {
        let Some(model) = self.model.clone() else { return Ok(None) };
        let bytes = self.bytes.filter(|bytes| (1e8..1e17).contains(bytes));
        let with_vendor = self.vendor.as_ref().map(|vendor| format!("{vendor} {model}"));
        let named = |name: &String| of_model(name);
        let of_vendor = || with_vendor.as_ref().and_then(named);
        let (disk, is_known) = match of_model(&model).or_else(of_vendor) {
            Some(known) => {
                let capacity_gb = bytes.map_or(known.capacity_gb, |bytes| bytes / 1e9);
                (Disk { capacity_gb, ..known.clone() }, true)
            }
            None => match bytes {
                Some(bytes) => (self.described(&model, bytes), false),
                None => return Err(SmartctlError::NoCapacity(model)),
            },
        };
        let disk = Disk { link_mb_per_s: self.link_mb_per_s, ..disk };
        Ok(Some(Seen { model, serial: self.serial, disk, is_known }))
    }

    /// A disk that the catalogue does not have.
    fn described(&self, model: &str, bytes: f64) -> Disk {
        let rpm = self.rpm.filter(|rpm| (1000.0..=30_000.0).contains(rpm));
        let kind = match (self.is_nvme, self.is_solid, self.is_sas) {
            (true, ..) => DiskKind::Nvme,
            (_, true, true) => DiskKind::SasSsd,
            (_, true, false) => DiskKind::SataSsd,
            _ => DiskKind::Hdd,
        };
        let interface = match (self.is_nvme, self.is_sas) {
            (true, _) => "NVMe",
            (_, true) => "SAS",
            _ => "SATA",
        };
        // Disks with platters trim, or have zones, where their tracks overlap.
        let shingled = kind == DiskKind::Hdd && (self.has_trim || self.is_zoned);
        Disk {
            name: model.to_string(),
            aliases: Vec::new(),
            model_prefixes: vec![model.to_string()],
            kind,
            recording: shingled.then_some(Recording::Shingled),
            interface: Some(interface.to_string()),
            form_factor: self.form_factor.clone(),
            rpm,
            actuators: None,
            capacity_gb: bytes / 1e9,
            read_mb_per_s: None,
            write_mb_per_s: None,
            seek_ms: None,
            random_read_iops: None,
            random_write_iops: None,
            depth: None,
            errors_per_bit: None,
            workload_tb_per_year: None,
            endurance_dwpd: None,
            year: None,
            source: match &self.family {
                Some(family) => format!("smartctl: {family}"),
                None => "smartctl".to_string(),
            },
            link_mb_per_s: None,
            confidence: ASSUMED.into(),
        }
    }
}
