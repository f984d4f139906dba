"""What is an encoder before any training, as a picture and as numbers?"""
