import Stockroom
