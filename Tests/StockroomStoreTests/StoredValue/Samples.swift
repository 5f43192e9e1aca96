struct RedPanda: Codable, Equatable {
  var cuteRating: Int
  var name: String? = nil
}

struct LikedVideos: Codable, Equatable { var ids: [Int] }

struct DownloadedVideos: Codable, Equatable { var ids: [Int] }

enum Theme: String, Codable { case light, dark, system }
