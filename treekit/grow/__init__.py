"""Growing trees and forests from coded tables."""
