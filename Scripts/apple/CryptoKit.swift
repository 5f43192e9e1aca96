// swift-crypto has the interface of CryptoKit, and CryptoKit itself below on Apple's systems.
@_exported import Crypto
