//! What a process says of itself: its build, its host's name and addresses.

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use ring::digest::{Context, SHA256};

use super::error::LinkError;
use super::token::hex;

/// Returns the SHA-256 of the running program file: equal builds, and nothing else, are equal.
pub fn build_hash() -> Result<String, LinkError> {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash.clone());
    }
    // The link leads to the running file even if another one has taken its name.
    let mut file = File::open("/proc/self/exe").map_err(LinkError::Program)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(LinkError::Program)? {
            0 => break,
            read => context.update(&buffer[..read]),
        }
    }
    Ok(HASH.get_or_init(|| hex(context.finish().as_ref())).clone())
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns this machine's addresses, without those that another machine cannot reach.
pub fn local_addresses() -> Vec<IpAddr> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut all: Vec<IpAddr> =
        v4(&read("/proc/net/fib_trie")).into_iter().map(IpAddr::V4).collect();
    all.extend(v6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::V6));
    all
}

/// An address is the line before one of `/32 host LOCAL`.
fn v4(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut last = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.take_if(|a: &mut Ipv4Addr| !a.is_loopback())
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// A line has the address as 32 hexadecimal digits, then index, prefix, scope (0: global).
fn v6(if_inet6: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let digits = words.next()?;
        (words.nth(2)? == "00").then_some(())?;
        Some(Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?))
    };
    if_inet6.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_machines_and_of_the_loopback_are_left_out() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n\
                    \x20    |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n\
                    \x20    |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        assert_eq!(v4(trie), [Ipv4Addr::new(10, 0, 0, 7)]);
        let inet6 = "fe800000000000000000000000000001 02 40 20 80 eth0\n\
                     20010db8000000000000000000000007 02 40 00 80 eth0\n\
                     00000000000000000000000000000001 01 80 10 80 lo\n";
        assert_eq!(v6(inet6), ["2001:db8::7".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn build_hash_has_64_digits_and_does_not_change() {
        let hash = build_hash().unwrap();
        assert_eq!(hash.len(), 64);
        assert_eq!(build_hash().unwrap(), hash);
    }
}
