//! Which addresses are of the open internet: nothing else may be reached through a URL in a request.
//!
//! Address families that carry an IPv4 address inside (mapped, NAT64, 6to4) are judged by it; those that could carry one to
//! anywhere (compatible, Teredo) are refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4 that are somebody's own, or nobody's: (first address, bits).
const CLOSED_V4: [([u8; 4], u32); 17] = [
    ([0, 0, 0, 0], 8),       // this network; 0.0.0.0 is the machine itself
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // shared by providers, clusters and VPNs
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local, metadata of clouds
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 31, 196, 0], 24), // AS112
    ([192, 52, 193, 0], 24), // AMT
    ([192, 88, 99, 0], 24),  // relays of 6to4
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast
    ([240, 0, 0, 0], 4),     // reserved, broadcast
];

/// The same of IPv6, inside 2000::/3; outside of it nothing is open but what carries an open IPv4 address.
const CLOSED_V6: [([u16; 3], u32); 4] = [
    ([0x2001, 0, 0], 23),         // protocol assignments, Teredo and ORCHID among them
    ([0x2001, 0x0DB8, 0], 32),    // documentation
    ([0x2620, 0x4F, 0x8000], 48), // AS112
    ([0x3FFF, 0, 0], 20),         // documentation
];

/// Is it an address of the open internet.
pub fn is_open(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_open_v4(v4),
        IpAddr::V6(v6) => is_open_v6(v6),
    }
}

fn is_open_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !CLOSED_V4.iter().any(|(first, n)| (bits ^ Ipv4Addr::from(*first).to_bits()) >> (32 - n) == 0)
}

fn is_open_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let v4 = |high: u16, low: u16| is_open_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match s {
        // Mapped, and the well-known prefix of NAT64.
        [0, 0, 0, 0, 0, 0xFFFF, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => s[0] >> 13 == 1 && !CLOSED_V6.iter().any(|(first, n)| under(address, *first, *n)),
    }
}

fn under(address: Ipv6Addr, [a, b, c]: [u16; 3], n: u32) -> bool {
    (address.to_bits() ^ Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).to_bits()) >> (128 - n) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(text: &str) -> bool {
        is_open(text.parse().unwrap())
    }

    #[test]
    fn closed_addresses_are_closed_at_both_ends() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "::ffff:0:1.2.3.4",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:101::",
            "2001::1",
            "2001:0:808:808::",
            "2001:db8::1",
            "2001:10::1",
            "2001:1ff:ffff::",
            "3fff::1",
            "fc00::1",
            "fdff:ffff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
            "4000::1",
        ] {
            assert!(!open(text), "{text}");
        }
    }

    #[test]
    fn open_addresses_are_open_next_to_closed_ones() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(open(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_carries_an_address_is_judged_by_it(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            let carried = [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xFFFF, high, low),
                Ipv6Addr::new(0x64, 0xFF9B, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 1, 2, 3, 4, 5),
            ];
            for v6 in carried {
                prop_assert_eq!(is_open(v6.into()), is_open(v4.into()), "{}", v6);
            }
        }

        #[test]
        fn nothing_that_the_standard_library_knows_as_own_is_open(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let own = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_unspecified();
            prop_assert!(!(own && is_open(v4.into())), "{}", v4);
        }
    }
}
